"""`hindcast verify --parallel`: processes that recompute stretches of a run's log. Importing this loads torch.

    parent                                          child
      Assignment, then Stretch, Stretch … ──stdin──> LogRecomputer
      Answer, Answer …                   <──stdout──

A child reads the log once, computes with the number of threads that the log records, and ends with its standard input, so
that no child outlives its parent. Messages are MessagePack after their length.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO, TypeVar

import msgspec
import structlog

import hindcast.core.errors
from hindcast.app.runs.sources import open_source
from hindcast.app.system.interrupts import INTERRUPTED
from hindcast.core.errors import HindcastError
from hindcast.core.models.folders import policy_folder
from hindcast.core.structs import decode_msgpack
from hindcast.learner.verify.log_recomputer import LogRecomputer, StretchReport
from hindcast.learner.verify.survey import LogStretch

T = TypeVar("T")
CHILD = "from hindcast.app.replay.recomputers import main; main()"
LENGTH_BYTES = 4


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a child."""

    run: str
    """Name as `open_source` takes it."""
    code_rev: str
    tolerance: float | None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A child's message. Without any field: one more update is done."""

    report: StretchReport | None = None
    error: str = ""
    """Why the stretch cannot be recomputed, in words."""
    kind: str = ""
    """Class of that error."""


class RecomputingFailed(HindcastError):
    """A process that recomputed a part of the run ended or cannot continue."""


class ProcessRecomputer:
    """A `learner.verify.log_recomputer.Recomputer` in a separate process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """See `start`."""
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._process = process
        self._to_child = process.stdin
        self._from_child = process.stdout

    @classmethod
    async def start(cls, assignment: Assignment) -> "ProcessRecomputer":
        """Start a process that waits for its first stretch."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", CHILD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        recomputer = cls(process)
        recomputer._say(assignment)
        return recomputer

    @property
    def elsewhere(self) -> bool:
        """See `Recomputer.elsewhere`."""
        return True

    async def recompute(self, stretch: LogStretch, *, updated: Callable[[], None]) -> StretchReport:
        """See `Recomputer.recompute`."""
        self._say(stretch)
        while (answer := await _receive(self._from_child, Answer)) is not None:
            if answer.error:
                raise _as_raised(answer)
            if answer.report is not None:
                return answer.report
            updated()
        status = await self._process.wait()
        raise RecomputingFailed(
            f"the process that recomputed positions {stretch.begin.position + 1} to {stretch.until} ended with status {status}; "
            "its messages are above. Each process holds the model and its optimiser: where memory is short, try "
            "fewer with --parallel."
        )

    def _say(self, message: Assignment | LogStretch) -> None:
        with suppress(ConnectionError):  # it ended: reading says so
            self._to_child.write(_framed(message))

    async def close(self) -> None:
        """See `Recomputer.close`."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def recomputing_processes(
    count: int, assignment: Assignment
) -> AsyncIterator[Sequence[ProcessRecomputer]]:
    """This many processes; all of them have ended when the block has."""
    started: list[ProcessRecomputer] = []
    try:
        for _ in range(count):
            started.append(await ProcessRecomputer.start(assignment))  # noqa: PERF401  # to be ended if the next fails
        yield started
    finally:
        await asyncio.gather(*(recomputer.close() for recomputer in started))


def _as_raised(answer: Answer) -> HindcastError:
    """The child's error in its original class, which determines the command's exit status."""
    kind = getattr(hindcast.core.errors, answer.kind, None)
    if isinstance(kind, type) and issubclass(kind, HindcastError):
        return kind(answer.error)
    return RecomputingFailed(answer.error)


def _framed(message: msgspec.Struct) -> bytes:
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


async def _receive(reader: asyncio.StreamReader, kind: type[T]) -> T | None:
    """The next message; None: the other side has ended."""
    try:
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        return decode_msgpack(await reader.readexactly(length), kind)
    except asyncio.IncompleteReadError:
        return None


def main() -> None:
    """Run a child: do what standard input asks until it ends."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
    )
    status = 0
    try:
        asyncio.run(_live(answers))
    except (asyncio.CancelledError, BrokenPipeError):
        pass  # the parent has ended
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        sys.stderr.flush()
        os._exit(status)  # without waiting for the forward pass that a thread may be in


async def _live(answers: BinaryIO) -> None:
    said = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), sys.stdin)
    assignment = await _receive(said, Assignment)
    if assignment is None:
        return
    stretches: asyncio.Queue[LogStretch] = asyncio.Queue()
    working = asyncio.create_task(_work(assignment, stretches, answers), name="recomputing")
    while (stretch := await _receive(said, LogStretch)) is not None:
        await stretches.put(stretch)
    working.cancel()
    await working


async def _work(assignment: Assignment, stretches: asyncio.Queue[LogStretch], answers: BinaryIO) -> None:
    def say(answer: Answer) -> None:
        answers.write(_framed(answer))

    try:
        source = open_source(assignment.run)
        async with source.connect_log() as log:
            recomputer = LogRecomputer(
                log,
                source.blobs,
                policy=policy_folder(source.settings.policy.base),
                code_rev=assignment.code_rev,
                tolerance=assignment.tolerance,
            )
            while True:
                stretch = await stretches.get()
                say(Answer(report=await recomputer.recompute(stretch, updated=lambda: say(Answer()))))
    except HindcastError as error:
        say(Answer(error=str(error), kind=type(error).__name__))
