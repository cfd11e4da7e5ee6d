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
    said: asyncio.Future[BatchLine | Completion]


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
        self._kept: dict[str, StoredBatch] = {}
        """Stored batches by question."""
        self._own: set[str] = set()
        """Keys of all batches that this process has stored or waited for."""
        self._settled: dict[str, set[str]] = {}
        """By key: settled questions that are still in the batch's file."""
        self._first: set[str] = set()
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
        for kept in await asyncio.to_thread(self._files.left):
            self._know(kept, kept.questions)
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
            kept = self._kept.get(question)
            if kept is None:
                self._gather(question, body)
            else:
                self._begin_following(kept)
        return await asyncio.shield(self._waiting[question].said)

    async def settle(self, question: str, *, remembered: bool) -> bool:
        """Finish a question whose answer is `remembered` in the cache, or is invalid. Returns whether an invalid one is new."""
        self._answers.pop(question, None)
        kept = self._kept.pop(question, None)
        if kept is None:
            return False
        kept.questions.remove(question)
        if not remembered:
            self._settled.setdefault(kept.key, set()).add(question)
        async with self._settling:
            # also the questions of concurrent callers: one write for many
            settled = self._settled.pop(kept.key, set())
            try:
                if settled or not kept.questions:
                    self._first |= await asyncio.to_thread(
                        self._files.settle, kept.key, settled, last=not kept.questions
                    )
            except OSError as error:
                # the answer is worth more: a later process checks this batch once more
                self._first |= settled
                logger.warning("a batch's file is not up to date", batch=kept.batch, reason=str(error))
        first = question in self._first
        self._first.discard(question)
        return first

    def _know(self, kept: StoredBatch, questions: Iterable[str]) -> None:
        self._kept |= dict.fromkeys(questions, kept)
        self._own.add(kept.key)

    def _begin_following(self, kept: StoredBatch) -> None:
        if kept.key not in self._followed:
            self._followed.add(kept.key)
            self._start(self._follow(kept))

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

    async def _send(self, asked: Mapping[str, Mapping[str, Any]], full: asyncio.Event) -> None:
        """Wait for further questions, and begin a batch of them all."""
        waiting = asyncio.ensure_future(full.wait())
        await asyncio.wait({waiting}, timeout=self._settings.batch_gather_s)
        waiting.cancel()
        if self._gathered is asked:
            self._gathered = {}
        wanted = [question for question in asked if question in self._waiting]
        for question in wanted:
            if (holding := self._kept.get(question)) is not None:  # found in a batch since it was gathered
                self._begin_following(holding)
        kept = self._files.new(sorted(question for question in wanted if question not in self._kept))
        if not kept.questions:
            return
        try:
            with self._files.held(kept.key):
                claimed = await asyncio.to_thread(self._files.claim, kept, own=frozenset(self._own))
                for question, said in claimed.remembered.items():
                    self._hand_out(question, said)
                for other in {other.key: other for other in claimed.elsewhere.values()}.values():
                    # all of it, also questions without a caller here so far: its file is not read again
                    self._know(other, [name for name in other.questions if name not in self._kept])
                    self._begin_following(other)
                if kept.questions:
                    self._know(kept, kept.questions)
                    self._followed.add(kept.key)
                    await self._begin(
                        kept, b"".join(question_line(name, asked[name]) for name in kept.questions)
                    )
        except (NotAnswered, OSError) as error:
            await self._give_up(kept, error)
            return
        if kept.questions:
            await self._follow(kept)

    async def _begin(self, kept: StoredBatch, lines: bytes) -> None:
        files, batches = self._client.files.with_raw_response, self._client.batches.with_raw_response
        file = await self._asked(
            lambda: files.create(file=(f"{kept.key[:16]}.jsonl", lines), purpose="batch"), UploadedFile
        )
        begun = await self._asked(
            lambda: batches.create(
                input_file_id=file.id,
                endpoint=COMPLETIONS,
                completion_window="24h",
                metadata={KEY: kept.key},
            ),
            BatchStatus,
        )
        kept.batch = begun.id
        await asyncio.to_thread(self._files.write, kept)
        logger.info("batch begun", batch=kept.batch, questions=len(kept.questions))

    async def _follow(self, kept: StoredBatch) -> None:
        """Wait for a batch, and hand out its answers."""
        asked = list(kept.questions)
        until = asyncio.get_running_loop().time() + self._settings.batch_wait_s
        try:
            if not kept.batch and not await self._stands(kept, until):
                for question in set(asked) & self._waiting.keys():
                    self._gather(question, self._waiting[question].body)
                return
            lines = await self._lines(kept, until)
        except (NotAnswered, OSError) as error:
            await self._give_up(kept, error)
            return
        finally:
            self._followed.discard(kept.key)
        logger.info("batch ended", batch=kept.batch, answers=len(lines), questions=len(asked))
        for question in asked:
            line = lines.get(question, BatchLine(custom_id=question))
            self._answers[question] = line
            self._hand_out(question, line)

    def _hand_out(self, question: str, said: BatchLine | Completion) -> None:
        if (waiting := self._waiting.pop(question, None)) is not None and not waiting.said.done():
            waiting.said.set_result(said)

    async def _stands(self, kept: StoredBatch, until: float) -> bool:
        """Whether a batch without an id was begun after all; it is dropped if not. Raises NotAnswered."""
        while True:
            with self._files.held(kept.key) as ours:
                if ours:
                    if await self._was_begun(kept, until):
                        return True
                    await self._forget(kept)
                    return False
            if asyncio.get_running_loop().time() > until:
                raise NotAnswered("outage", "another process is beginning this batch", settled=False)
            await self._sleep(HELD_LOOK_S)

    async def _was_begun(self, kept: StoredBatch, until: float) -> bool:
        """Called under the batch's lock: whether its id is in its file by now, or the server has a batch of its key."""
        standing = await asyncio.to_thread(self._files.read, kept.key)
        if standing is None:
            return False
        if standing.batch:
            kept.batch = standing.batch
            return True
        batches = self._client.batches.with_raw_response
        listed = await self._patiently(
            lambda: self._asked(lambda: batches.list(limit=LISTED), BatchList), until
        )
        found = [one.id for one in listed.data if (one.metadata or {}).get(KEY) == kept.key]
        if found:
            kept.batch = found[0]
            await asyncio.to_thread(self._files.write, kept)
        return bool(found)

    async def _lines(self, kept: StoredBatch, until: float) -> dict[str, BatchLine]:
        """The answers of a batch once it has ended. Raises NotAnswered."""
        settings, clock = self._settings, asyncio.get_running_loop().time
        batches = self._client.batches.with_raw_response
        while True:
            batch = await self._patiently(
                lambda: self._asked(lambda: batches.retrieve(kept.batch), BatchStatus), until
            )
            if batch.status in ENDED:
                break
            if batch.status == FAILED:
                why = msgspec.json.encode(batch.errors).decode()[:300]
                raise NotAnswered("rejected", f"the server rejects batch {kept.batch}: {why}", settled=True)
            if clock() > until:
                raise NotAnswered(
                    "outage",
                    f"batch {kept.batch} is {batch.status} after {settings.batch_wait_s:g} s (endpoint.batch_wait_s)",
                    settled=False,
                )
            await self._sleep(settings.batch_poll_s)
        found: dict[str, BatchLine] = {}
        for name in (batch.error_file_id, batch.output_file_id):
            if name:
                found |= await self._read_lines(name, kept, until)
        return found

    async def _lines_of(self, name: str) -> dict[str, BatchLine]:
        """The lines of a file by question. Raises NotAnswered, MalformedCompletion."""
        files = self._client.files.with_raw_response
        content = await self._call(lambda: _content(files.content(name)))
        return read_lines(content)

    async def _read_lines(self, name: str, kept: StoredBatch, until: float) -> dict[str, BatchLine]:
        """As `_lines_of`, through outages, with further attempts at unreadable content. Raises NotAnswered."""
        for look in range(UNREADABLE_LOOKS):
            if look:
                await self._sleep(self._settings.batch_poll_s * 2 ** (look - 1))
            try:
                return await self._patiently(lambda: self._lines_of(name), until)
            except MalformedCompletion as error:
                reason = str(error)
                logger.warning("a batch's answers cannot be read", batch=kept.batch, reason=reason)
        raise NotAnswered(
            "outage",
            f"the answers of batch {kept.batch}, file {name}, were fetched {UNREADABLE_LOOKS} times and cannot be read: {reason}. "
            "They are dropped, and its questions are sent anew when they are asked again",
            settled=True,
        )

    async def _patiently(self, look: Callable[[], Awaitable[Read]], until: float) -> Read:
        """Poll a batch. It is paid for, so an outage does not end the wait. Raises NotAnswered."""
        outage = False
        while True:
            try:
                found = await look()
            except NotAnswered as error:
                if error.settled or error.trouble != "outage":
                    raise
                if asyncio.get_running_loop().time() > until:
                    waited = f"{self._settings.batch_wait_s:g} s (endpoint.batch_wait_s)"
                    raise NotAnswered("outage", f"{error}; so after {waited}", settled=False) from None
                if not outage:
                    outage = True
                    logger.warning("batches cannot be looked at: trying further", reason=str(error))
            else:
                if outage:
                    logger.info("batches can be looked at again")
                return found
            await self._sleep(self._settings.batch_poll_s)

    async def _asked(self, request: Callable[[], Awaitable[Any]], kind: type[Read]) -> Read:
        content = await self._call(lambda: _content(request()))
        try:
            return decode_json(content, kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise NotAnswered(
                "outage", f"the server's Batch API sent no {kind.__name__}: {error}", settled=False
            ) from None

    async def _give_up(self, kept: StoredBatch, error: Exception) -> None:
        """Report a failure to the waiting callers. A rejected batch is dropped. After an outage, or with a rejected key, it is
        checked again.
        """
        self._followed.discard(kept.key)
        failure = (
            error if isinstance(error, NotAnswered) else NotAnswered("outage", str(error), settled=False)
        )
        logger.warning("a batch failed", batch=kept.batch, reason=str(failure))
        asked = list(kept.questions)
        if failure.settled:
            await self._forget(kept)
        for question in asked:
            if (waiting := self._waiting.pop(question, None)) is not None and not waiting.said.done():
                again = NotAnswered(failure.trouble, str(failure), settled=failure.settled)
                waiting.said.set_exception(again)

    async def _forget(self, kept: StoredBatch) -> None:
        for question in kept.questions:
            if self._kept.get(question) is kept:
                del self._kept[question]
        try:
            await asyncio.to_thread(self._files.drop, kept.key)
        except OSError as error:
            # the waiting callers get the failure all the same; a later process checks this batch once more
            logger.warning("a batch's file stays", batch=kept.batch, reason=str(error))


async def _content(response: Awaitable[Any]) -> bytes:
    return bytes((await response).content)
