"""Questions asked together through a server's Batch API (`/v1/files`, `/v1/batches`): cheaper, answered within a day.

    answer ── gathered ──> file ──> batch ──> polled ──> its answers, each to the call that waits for it
       │        (stored in a file before the batch begins, with its id as soon as there is one)
       └── a stored batch holds the question ──> that batch is waited for

A question in a stored batch is not sent again, not even by a later or concurrent process (`actors.endpoint.batch_files`).
A batch whose id was not stored before a crash is found among the server's batches by the key in its metadata. A batch is
dropped when each of its answers is cached, or was handed out and is invalid.

It waits for more questions (`endpoint.batch_gather_s`, or until there are `endpoint.batch_questions`), for another
process that is about to begin a batch (checked every `HELD_LOOK_S`), then for the batch (`endpoint.batch_wait_s`, polled
every `endpoint.batch_poll_s`), through outages of the server too. One event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import structlog

from hindcast.actors.endpoint.answer_cache import AnswerCache
from hindcast.actors.endpoint.batch_files import BatchFiles, StoredBatch
from hindcast.actors.endpoint.batch_wire import (
    COMPLETIONS,
    ENDED,
    FAILED,
    BatchLine,
    BatchList,
    BatchStatus,
    NotAnswered,
    UploadedFile,
    question_line,
    read_lines,
)
from hindcast.actors.endpoint.chat_wire import MalformedCompletion
from hindcast.actors.endpoint.completion import Completion
from hindcast.core.settings.endpoint import EndpointSettings
from hindcast.core.structs import decode_json

KEY = "hindcast"
"""Metadata field that holds a batch's key."""
LISTED = 100
"""Batches of the server that are searched for one whose id was not stored."""
HELD_LOOK_S = 1.0
UNREADABLE_LOOKS = 4
"""Attempts to read a file of answers with unreadable content: the transfer may have failed. Pauses grow from
`endpoint.batch_poll_s`.
"""

Read = TypeVar("Read")
Call = Callable[[Callable[[], Awaitable[bytes]]], Awaitable[bytes]]
"""Sends a request, with retries where they may help; raises NotAnswered."""

logger = structlog.get_logger(__name__)


class _Waiting(NamedTuple):
    body: Mapping[str, Any]
    result: asyncio.Future[BatchLine | Completion]


class Batches:
    """The batches of one process; an async context manager within one event loop."""

    def __init__(
        self,
        client: Any,
        settings: EndpointSettings,
        *,
        folder: Path,
        memory: AnswerCache,
        call: Call,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`client`: an AsyncOpenAI; `folder`: where batches are stored."""
        self._client = client
        self._settings = settings
        self._files = BatchFiles(folder, base_url=settings.base_url, memory=memory)
        self._call = call
        self._sleep = sleep
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._stored: dict[str, StoredBatch] = {}
        """Stored batches by question."""
        self._own_keys: set[str] = set()
        """Keys of all batches that this process has stored or waited for."""
        self._settled: dict[str, set[str]] = {}
        """By key: settled questions that are still in the batch's file."""
        self._settled_first: set[str] = set()
        """Questions that this process settled before any other."""
        self._waiting: dict[str, _Waiting] = {}
        self._gathered: dict[str, Mapping[str, Any]] = {}
        self._full = asyncio.Event()
        self._settling = asyncio.Lock()
        """Many answers of one batch are settled at once, and all of them change its file."""
        self._followed: set[str] = set()
        self._answers: dict[str, BatchLine] = {}

    async def __aenter__(self) -> Self:
        """Load the batches of earlier processes."""
        for stored in await asyncio.to_thread(self._files.pending):
            self._remember(stored, stored.questions)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop waiting; sent batches stay stored."""
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)  # the caller's errors belong in no group

    async def answer(self, question: str, body: Mapping[str, Any]) -> BatchLine | Completion:
        """The result of a question, by its digest; a completion: another process has asked it meanwhile. Raises NotAnswered."""
        if question in self._answers:
            return self._answers[question]
        if question not in self._waiting:
            future = asyncio.get_running_loop().create_future()
            self._waiting[question] = _Waiting(body, future)
            stored = self._stored.get(question)
            if stored is None:
                self._gather(question, body)
            else:
                self._begin_following(stored)
        return await asyncio.shield(self._waiting[question].result)

    async def settle(self, question: str, *, remembered: bool) -> bool:
        """Finish a question whose answer is `remembered` in the cache, or is invalid. Returns whether an invalid one is new."""
        self._answers.pop(question, None)
        stored = self._stored.pop(question, None)
        if stored is None:
            return False
        stored.questions.remove(question)
        if not remembered:
            self._settled.setdefault(stored.key, set()).add(question)
        async with self._settling:
            # also the questions of concurrent callers: one write for many
            settled = self._settled.pop(stored.key, set())
            try:
                if settled or not stored.questions:
                    self._settled_first |= await asyncio.to_thread(
                        self._files.settle, stored.key, settled, last=not stored.questions
                    )
            except OSError as error:
                # the answer is worth more: a later process checks this batch once more
                self._settled_first |= settled
                logger.warning("a batch's file is not up to date", batch=stored.batch, reason=str(error))
        first = question in self._settled_first
        self._settled_first.discard(question)
        return first

    def _remember(self, stored: StoredBatch, questions: Iterable[str]) -> None:
        self._stored |= dict.fromkeys(questions, stored)
        self._own_keys.add(stored.key)

    def _begin_following(self, stored: StoredBatch) -> None:
        if stored.key not in self._followed:
            self._followed.add(stored.key)
            self._start(self._follow(stored))

    def _start(self, work: Any) -> None:
        task = self._tasks.create_task(work, context=Context())  # the first caller has limits of its own
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _gather(self, question: str, body: Mapping[str, Any]) -> None:
        if not self._gathered:
            self._gathered, self._full = {}, asyncio.Event()
            self._start(self._send(self._gathered, self._full))
        self._gathered[question] = body
        if len(self._gathered) >= self._settings.batch_questions:
            self._full.set()
            self._gathered = {}  # questions after this go into the next batch

    async def _send(self, bodies: Mapping[str, Mapping[str, Any]], full: asyncio.Event) -> None:
        """Wait for further questions, and begin a batch of them all."""
        waiting = asyncio.ensure_future(full.wait())
        await asyncio.wait({waiting}, timeout=self._settings.batch_gather_s)
        waiting.cancel()
        if self._gathered is bodies:
            self._gathered = {}
        waited_for = [question for question in bodies if question in self._waiting]
        for question in waited_for:
            if (holding := self._stored.get(question)) is not None:  # found in a batch since it was gathered
                self._begin_following(holding)
        stored = self._files.create(
            sorted(question for question in waited_for if question not in self._stored)
        )
        if not stored.questions:
            return
        try:
            with self._files.locked(stored.key):
                claimed = await asyncio.to_thread(
                    self._files.claim, stored, own_keys=frozenset(self._own_keys)
                )
                for question, result in claimed.remembered.items():
                    self._hand_out(question, result)
                for other_batch in {
                    other_batch.key: other_batch for other_batch in claimed.elsewhere.values()
                }.values():
                    # all of it, also questions without a caller here so far: its file is not read again
                    self._remember(
                        other_batch, [name for name in other_batch.questions if name not in self._stored]
                    )
                    self._begin_following(other_batch)
                if stored.questions:
                    self._remember(stored, stored.questions)
                    self._followed.add(stored.key)
                    await self._begin(
                        stored, b"".join(question_line(name, bodies[name]) for name in stored.questions)
                    )
        except (NotAnswered, OSError) as error:
            await self._give_up(stored, error)
            return
        if stored.questions:
            await self._follow(stored)

    async def _begin(self, stored: StoredBatch, lines: bytes) -> None:
        files, batches = self._client.files.with_raw_response, self._client.batches.with_raw_response
        file = await self._request(
            lambda: files.create(file=(f"{stored.key[:16]}.jsonl", lines), purpose="batch"), UploadedFile
        )
        batch = await self._request(
            lambda: batches.create(
                input_file_id=file.id,
                endpoint=COMPLETIONS,
                completion_window="24h",
                metadata={KEY: stored.key},
            ),
            BatchStatus,
        )
        stored.batch = batch.id
        await asyncio.to_thread(self._files.write, stored)
        logger.info("batch begun", batch=stored.batch, questions=len(stored.questions))

    async def _follow(self, stored: StoredBatch) -> None:
        """Wait for a batch, and hand out its answers."""
        questions = list(stored.questions)
        deadline = asyncio.get_running_loop().time() + self._settings.batch_wait_s
        try:
            if not stored.batch and not await self._find_or_drop(stored, deadline):
                for question in set(questions) & self._waiting.keys():
                    self._gather(question, self._waiting[question].body)
                return
            lines = await self._lines(stored, deadline)
        except (NotAnswered, OSError) as error:
            await self._give_up(stored, error)
            return
        finally:
            self._followed.discard(stored.key)
        logger.info("batch ended", batch=stored.batch, answers=len(lines), questions=len(questions))
        for question in questions:
            line = lines.get(question, BatchLine(custom_id=question))
            self._answers[question] = line
            self._hand_out(question, line)

    def _hand_out(self, question: str, result: BatchLine | Completion) -> None:
        if (waiting := self._waiting.pop(question, None)) is not None and not waiting.result.done():
            waiting.result.set_result(result)

    async def _find_or_drop(self, stored: StoredBatch, deadline: float) -> bool:
        """Whether a batch without an id was begun after all; it is dropped if not. Raises NotAnswered."""
        while True:
            with self._files.locked(stored.key) as is_locked:
                if is_locked:
                    if await self._was_begun(stored, deadline):
                        return True
                    await self._forget(stored)
                    return False
            if asyncio.get_running_loop().time() > deadline:
                raise NotAnswered("outage", "another process is beginning this batch", settled=False)
            await self._sleep(HELD_LOOK_S)

    async def _was_begun(self, stored: StoredBatch, deadline: float) -> bool:
        """Called under the batch's lock: whether its id is in its file by now, or the server has a batch of its key."""
        standing = await asyncio.to_thread(self._files.load, stored.key)
        if standing is None:
            return False
        if standing.batch:
            stored.batch = standing.batch
            return True
        batches = self._client.batches.with_raw_response
        batch_list = await self._poll(
            lambda: self._request(lambda: batches.list(limit=LISTED), BatchList), deadline
        )
        ids = [batch.id for batch in batch_list.data if (batch.metadata or {}).get(KEY) == stored.key]
        if ids:
            stored.batch = ids[0]
            await asyncio.to_thread(self._files.write, stored)
        return bool(ids)

    async def _lines(self, stored: StoredBatch, deadline: float) -> dict[str, BatchLine]:
        """The answers of a batch once it has ended. Raises NotAnswered."""
        settings, clock = self._settings, asyncio.get_running_loop().time
        batches = self._client.batches.with_raw_response
        while True:
            batch = await self._poll(
                lambda: self._request(lambda: batches.retrieve(stored.batch), BatchStatus), deadline
            )
            if batch.status in ENDED:
                break
            if batch.status == FAILED:
                errors = msgspec.json.encode(batch.errors).decode()[:300]
                raise NotAnswered(
                    "rejected", f"the server rejects batch {stored.batch}: {errors}", settled=True
                )
            if clock() > deadline:
                raise NotAnswered(
                    "outage",
                    f"batch {stored.batch} is {batch.status} after {settings.batch_wait_s:g} s (endpoint.batch_wait_s)",
                    settled=False,
                )
            await self._sleep(settings.batch_poll_s)
        lines: dict[str, BatchLine] = {}
        for name in (batch.error_file_id, batch.output_file_id):
            if name:
                lines |= await self._read_lines(name, stored, deadline)
        return lines

    async def _lines_of(self, name: str) -> dict[str, BatchLine]:
        """The lines of a file by question. Raises NotAnswered, MalformedCompletion."""
        files = self._client.files.with_raw_response
        content = await self._call(lambda: _content(files.content(name)))
        return read_lines(content)

    async def _read_lines(self, name: str, stored: StoredBatch, deadline: float) -> dict[str, BatchLine]:
        """As `_lines_of`, through outages, with further attempts at unreadable content. Raises NotAnswered."""
        for attempt in range(UNREADABLE_LOOKS):
            if attempt:
                await self._sleep(self._settings.batch_poll_s * 2 ** (attempt - 1))
            try:
                return await self._poll(lambda: self._lines_of(name), deadline)
            except MalformedCompletion as error:
                reason = str(error)
                logger.warning("a batch's answers cannot be read", batch=stored.batch, reason=reason)
        raise NotAnswered(
            "outage",
            f"the answers of batch {stored.batch}, file {name}, were fetched {UNREADABLE_LOOKS} times and cannot be read: {reason}. "
            "They are dropped, and its questions are sent anew when they are asked again",
            settled=True,
        )

    async def _poll(self, request: Callable[[], Awaitable[Read]], deadline: float) -> Read:
        """Poll a batch. It is paid for, so an outage does not end the wait. Raises NotAnswered."""
        outage = False
        while True:
            try:
                result = await request()
            except NotAnswered as error:
                if error.settled or error.trouble != "outage":
                    raise
                if asyncio.get_running_loop().time() > deadline:
                    waited = f"{self._settings.batch_wait_s:g} s (endpoint.batch_wait_s)"
                    raise NotAnswered("outage", f"{error}; so after {waited}", settled=False) from None
                if not outage:
                    outage = True
                    logger.warning("batches cannot be looked at: trying further", reason=str(error))
            else:
                if outage:
                    logger.info("batches can be looked at again")
                return result
            await self._sleep(self._settings.batch_poll_s)

    async def _request(self, request: Callable[[], Awaitable[Any]], kind: type[Read]) -> Read:
        content = await self._call(lambda: _content(request()))
        try:
            return decode_json(content, kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise NotAnswered(
                "outage", f"the server's Batch API sent no {kind.__name__}: {error}", settled=False
            ) from None

    async def _give_up(self, stored: StoredBatch, error: Exception) -> None:
        """Report a failure to the waiting callers. A rejected batch is dropped. After an outage, or with a rejected key, it is
        checked again.
        """
        self._followed.discard(stored.key)
        failure = (
            error if isinstance(error, NotAnswered) else NotAnswered("outage", str(error), settled=False)
        )
        logger.warning("a batch failed", batch=stored.batch, reason=str(failure))
        questions = list(stored.questions)
        if failure.settled:
            await self._forget(stored)
        for question in questions:
            if (waiting := self._waiting.pop(question, None)) is not None and not waiting.result.done():
                failure_of_question = NotAnswered(failure.trouble, str(failure), settled=failure.settled)
                waiting.result.set_exception(failure_of_question)

    async def _forget(self, stored: StoredBatch) -> None:
        for question in stored.questions:
            if self._stored.get(question) is stored:
                del self._stored[question]
        try:
            await asyncio.to_thread(self._files.drop, stored.key)
        except OSError as error:
            # the waiting callers get the failure all the same; a later process checks this batch once more
            logger.warning("a batch's file stays", batch=stored.batch, reason=str(error))


async def _content(response: Awaitable[Any]) -> bytes:
    return bytes((await response).content)
