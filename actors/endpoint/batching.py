"""Questions asked together through a server's Batch API (`/v1/files`, `/v1/batches`): cheaper, and answered within a day.

    answer ── gathered ──> file ──> batch ──> polled ──> its answers, each to whoever waits for it
       │        (kept in a file before the batch is begun, with its id as soon as there is one)
       └── a kept batch holds the question ──> that batch is waited for

A question that a kept batch holds is not sent again, also by a process that starts later: a batch whose id was not written
down before the end is found again among the server's by the key in its metadata. A batch is let go of when each of its answers is
remembered, or was handed out and is none.

Waits for more questions (`endpoint.batch_gather_s`, or until there are `endpoint.batch_questions`), then for the batch
(`endpoint.batch_wait_s`, looked at every `endpoint.batch_poll_s`). One event loop.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import structlog

from actors.endpoint.asking import Trouble
from actors.endpoint.batch_wire import (
    COMPLETIONS,
    ENDED,
    FAILED,
    Batch,
    BatchList,
    Line,
    Named,
    question_line,
    read_lines,
)
from actors.endpoint.remembering import Memory
from actors.endpoint.wire import Unreadable
from core.endpoint import EndpointSettings
from core.ids import digest_hex

KEY = "hindcast"
"""Of a batch's metadata: the name that it is kept under here."""
LISTED = 100
"""Batches of the server that are looked through for one whose id was not written down."""

Read = TypeVar("Read")
Call = Callable[[Callable[[], Awaitable[bytes]]], Awaitable[bytes]]
"""Makes a request, tried again while that may help; raises NotAnswered."""

logger = structlog.get_logger(__name__)


class NotAnswered(Exception):
    """There is no answer to the questions of a batch, or to one of them."""

    def __init__(self, trouble: Trouble, reason: str, *, settled: bool) -> None:
        """`settled`: there never will be one; else a batch may be under way, and paid for, that answers later."""
        super().__init__(reason)
        self.trouble: Trouble = trouble
        self.settled = settled


class Kept(msgspec.Struct, kw_only=True):
    """A batch as it is kept in a file."""

    key: str
    base_url: str
    questions: list[str]
    """sha256 of each, whose answer is neither remembered nor known to be none."""
    batch: str = ""
    """The server's name for it; empty: it may not have come to be."""


class _Waiting(NamedTuple):
    body: Mapping[str, Any]
    line: asyncio.Future[Line]


class Batches:
    """The batches of one process; an async context manager within one event loop."""

    def __init__(
        self,
        client: Any,
        settings: EndpointSettings,
        *,
        folder: Path,
        memory: Memory,
        call: Call,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`client`: an AsyncOpenAI; `folder`: where batches are kept."""
        self._client = client
        self._settings = settings
        self._folder = folder
        self._memory = memory
        self._call = call
        self._sleep = sleep
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._kept: dict[str, Kept] = {}
        """By question."""
        self._waiting: dict[str, _Waiting] = {}
        self._gathered: dict[str, Mapping[str, Any]] = {}
        self._full = asyncio.Event()
        self._settling = asyncio.Lock()
        """Many answers of one batch are settled at once, and all of them change its file."""
        self._followed: set[str] = set()
        self._answers: dict[str, Line] = {}

    async def __aenter__(self) -> Self:
        """With what earlier processes left."""
        for kept in await asyncio.to_thread(self._left):
            self._kept |= dict.fromkeys(kept.questions, kept)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop waiting; what was sent stays kept."""
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)  # an error of whoever asked is theirs, and in no group

    async def answer(self, question: str, body: Mapping[str, Any]) -> Line:
        """What came of a question, by its digest. Raises NotAnswered."""
        if question in self._answers:
            return self._answers[question]
        if question not in self._waiting:
            future = asyncio.get_running_loop().create_future()
            self._waiting[question] = _Waiting(body, future)
            kept = self._kept.get(question)
            if kept is None:
                self._gather(question, body)
            elif kept.key not in self._followed:
                self._followed.add(kept.key)
                self._start(self._follow(kept))
        return await asyncio.shield(self._waiting[question].line)

    async def settle(self, question: str, *, remembered: bool) -> None:
        """Nobody will ask for this answer again: it is `remembered`, or is none."""
        self._answers.pop(question, None)
        kept = self._kept.pop(question, None)
        if kept is None:
            return
        kept.questions.remove(question)
        async with self._settling:
            try:
                if not kept.questions:
                    await asyncio.to_thread(self._place(kept).unlink, missing_ok=True)
                elif not remembered:
                    await asyncio.to_thread(self._write, kept)
            except (
                OSError
            ) as error:  # the answer is worth more: a later process looks at this batch once more
                logger.warning("a batch's file is not up to date", batch=kept.batch, reason=str(error))

    def _start(self, work: Any) -> None:
        task = self._tasks.create_task(work, context=Context())  # whoever asks first has limits of its own
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _gather(self, question: str, body: Mapping[str, Any]) -> None:
        if not self._gathered:
            self._gathered, self._full = {}, asyncio.Event()
            self._start(self._send(self._gathered, self._full))
        self._gathered[question] = body
        if len(self._gathered) >= self._settings.batch_questions:
            self._full.set()
            self._gathered = {}  # what is asked before the full one is on its way goes into the next

    async def _send(self, asked: Mapping[str, Mapping[str, Any]], full: asyncio.Event) -> None:
        """Wait for what else is asked, and begin a batch of it all."""
        waiting = asyncio.ensure_future(full.wait())
        await asyncio.wait({waiting}, timeout=self._settings.batch_gather_s)
        waiting.cancel()
        if self._gathered is asked:
            self._gathered = {}
        questions = sorted(asked)
        key = digest_hex(msgspec.json.encode([self._settings.base_url, questions]))
        kept = Kept(key=key, base_url=self._settings.base_url, questions=questions)
        self._kept |= dict.fromkeys(questions, kept)
        self._followed.add(key)
        try:
            await asyncio.to_thread(self._write, kept)
            await self._begin(kept, b"".join(question_line(name, asked[name]) for name in questions))
        except (NotAnswered, OSError) as error:
            await self._give_up(kept, error)
            return
        await self._follow(kept)

    async def _begin(self, kept: Kept, lines: bytes) -> None:
        files, batches = self._client.files.with_raw_response, self._client.batches.with_raw_response
        file = await self._asked(
            lambda: files.create(file=(f"{kept.key[:16]}.jsonl", lines), purpose="batch"), Named
        )
        begun = await self._asked(
            lambda: batches.create(
                input_file_id=file.id,
                endpoint=COMPLETIONS,
                completion_window="24h",
                metadata={KEY: kept.key},
            ),
            Batch,
        )
        kept.batch = begun.id
        await asyncio.to_thread(self._write, kept)
        logger.info("batch begun", batch=kept.batch, questions=len(kept.questions))

    async def _follow(self, kept: Kept) -> None:
        """Wait for a batch, and hand out its answers."""
        asked = list(kept.questions)
        try:
            if not kept.batch and not await self._found(kept):
                await self._forget(kept)
                for question in set(asked) & self._waiting.keys():
                    self._gather(question, self._waiting[question].body)
                return
            lines = await self._lines(kept)
        except (NotAnswered, OSError) as error:
            await self._give_up(kept, error)
            return
        finally:
            self._followed.discard(kept.key)
        logger.info("batch ended", batch=kept.batch, answers=len(lines), questions=len(asked))
        for question in asked:
            line = lines.get(question, Line(custom_id=question))
            self._answers[question] = line
            if (waiting := self._waiting.pop(question, None)) is not None and not waiting.line.done():
                waiting.line.set_result(line)

    async def _found(self, kept: Kept) -> bool:
        """Whether the server has a batch of this key, whose id was not written down."""
        batches = self._client.batches.with_raw_response
        listed = await self._asked(lambda: batches.list(limit=LISTED), BatchList)
        for batch in listed.data:
            if (batch.metadata or {}).get(KEY) == kept.key:
                kept.batch = batch.id
                await asyncio.to_thread(self._write, kept)
                return True
        return False

    async def _lines(self, kept: Kept) -> dict[str, Line]:
        """The answers of a batch once it has ended. Raises NotAnswered."""
        settings, clock = self._settings, asyncio.get_running_loop().time
        batches, files = self._client.batches.with_raw_response, self._client.files.with_raw_response
        until = clock() + settings.batch_wait_s
        while True:
            batch = await self._asked(lambda: batches.retrieve(kept.batch), Batch)
            if batch.status in ENDED:
                break
            if batch.status == FAILED:
                why = msgspec.json.encode(batch.errors).decode()[:300]
                raise NotAnswered(
                    "rejected", f"the server does not take batch {kept.batch}: {why}", settled=True
                )
            if clock() > until:
                raise NotAnswered(
                    "outage",
                    f"batch {kept.batch} is {batch.status} after {settings.batch_wait_s:g} s (endpoint.batch_wait_s)",
                    settled=False,
                )
            await self._sleep(settings.batch_poll_s)
        found: dict[str, Line] = {}
        for name in (batch.error_file_id, batch.output_file_id):
            if name:
                content = await self._call(lambda name=name: _content(files.content(name)))  # type: ignore[misc]
                try:
                    found |= read_lines(content)
                except Unreadable as error:
                    raise NotAnswered("outage", str(error), settled=False) from None
        return found

    async def _asked(self, request: Callable[[], Awaitable[Any]], kind: type[Read]) -> Read:
        content = await self._call(lambda: _content(request()))
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise NotAnswered(
                "outage", f"the server's Batch API sent no {kind.__name__}: {error}", settled=False
            ) from None

    async def _give_up(self, kept: Kept, error: Exception) -> None:
        """Tell whoever waits. What the server does not take is let go of; after an outage, or a key that it does not
        take, the batch is looked for again."""
        self._followed.discard(kept.key)
        failure = (
            error if isinstance(error, NotAnswered) else NotAnswered("outage", str(error), settled=False)
        )
        logger.warning("a batch came to nothing", batch=kept.batch, reason=str(failure))
        asked = list(kept.questions)
        if failure.settled:
            await self._forget(kept)
        for question in asked:
            if (waiting := self._waiting.pop(question, None)) is not None and not waiting.line.done():
                again = NotAnswered(failure.trouble, str(failure), settled=failure.settled)
                waiting.line.set_exception(again)

    async def _forget(self, kept: Kept) -> None:
        for question in kept.questions:
            self._kept.pop(question, None)
        await asyncio.to_thread(self._place(kept).unlink, missing_ok=True)

    def _left(self) -> list[Kept]:
        """What is kept of this server's batches, less what is remembered by now."""
        found = []
        for place in sorted(self._folder.glob("*.json")):
            try:
                kept = msgspec.json.decode(place.read_bytes(), type=Kept)
            except (OSError, msgspec.DecodeError):
                continue  # another process is done with it, or it was damaged: its questions are asked again
            if kept.base_url != self._settings.base_url:
                continue
            kept.questions = [name for name in kept.questions if self._memory.find(name) is None]
            if kept.questions:
                found.append(kept)
            else:
                place.unlink(missing_ok=True)
        return found

    def _write(self, kept: Kept) -> None:
        place = self._place(kept)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mine = place.with_suffix(f".{os.getpid()}")
        mine.write_bytes(msgspec.json.encode(kept))
        mine.replace(place)

    def _place(self, kept: Kept) -> Path:
        return self._folder / f"{kept.key}.json"


async def _content(response: Awaitable[Any]) -> bytes:
    return bytes((await response).content)
