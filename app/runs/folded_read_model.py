"""Read models folded on demand: of an archive, and of a run without a running projector.

A run's read model is where its projector keeps it. After `record`, `fork` or a kill it lacks events or does not exist. A
command that queries it then folds the rest first, up to the current end of the log. One process at a time folds into it
(`sole_writer`), the projector included; others wait. The page never folds.

The read model of an archive is in the home, `folded/<run>-<digest of the log's place>.sqlite`, never next to the log, which
may be evidence or on a read-only disk. It records its log and its position, takes in events added later, and is rebuilt if
the log is another one or a later Hindcast has other tables.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path

import structlog

from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source
from hindcast.app.system.broker import ensure_broker, try_lock
from hindcast.app.system.home import home_folder
from hindcast.core.errors import BrokerUnreachable, ForeignLog, HindcastError
from hindcast.events.log.port import EventLog
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.projector import fill
from hindcast.storage.readmodel.sqlite_address import sqlite_address

FOLDER = "folded"
LOCK_FILE = "readmodel.lock"
"""In a run's folder: held by the process that folds into its read model."""
OPEN_S = 10.0
"""How long a command that asks a read model waits for the log to open."""
LOCK_WAIT_S = 60.0
"""How long to wait for another process. Without the lock, two folds reject each other's batches, which is harmless."""
POLL_S = 0.1

_log = structlog.get_logger(__name__)

Watching = Callable[[EventLog], EventLog]


def bring_up(
    runs: Sequence[RunHandle], *, watching: Watching = lambda log: log
) -> dict[str, HindcastError | OSError]:
    """Fold the read models of `runs` up to their logs' ends; returns the error of each run that could not be folded.

    Skips runs whose projector is running. `watching` observes the reading of a log.
    """
    idle = [run for run in runs if not run.is_running("projector")]
    return asyncio.run(_bring_up(idle, watching)) if idle else {}


async def _bring_up(runs: Sequence[RunHandle], watching: Watching) -> dict[str, HindcastError | OSError]:
    failed: dict[str, HindcastError | OSError] = {}
    async with AsyncExitStack() as stack:
        local = [run for run in runs if not run.settings.log.url]
        if len(local) > 1:  # else a broker would be started and stopped for every single one
            try:
                await stack.enter_async_context(ensure_broker(local[0].home))
            except (HindcastError, OSError) as error:
                failed |= {run.name: error for run in local}
        silent: dict[str, HindcastError | OSError] = {}
        for run in runs:
            if run.name in failed:
                continue
            if known := silent.get(run.settings.log.url):
                failed[run.name] = known
                continue
            try:
                await _bring_one_up(run, watching)
            except BrokerUnreachable as error:
                failed[run.name] = error
                if run.settings.log.url:
                    silent[run.settings.log.url] = error
            except (HindcastError, OSError) as error:
                failed[run.name] = error
    return failed


async def _bring_one_up(run: RunHandle, watching: Watching) -> None:
    """Fold what one run lacks. Raises BrokerUnreachable where its log does not open within `OPEN_S`."""
    try:
        async with asyncio.timeout(OPEN_S) as bound, run.connect_log() as log:
            bound.reschedule(None)  # the fold itself may take its time
            await fold_now(run, watching(log))
    except TimeoutError:
        raise BrokerUnreachable(
            f"the broker of run {run.name} ({run.settings.log.url or 'of this home'}) has not answered for {OPEN_S:g} s: "
            "what was folded before is shown"
        ) from None


async def fold_now(run: RunHandle, log: EventLog) -> None:
    """Fold a run's log into its read model up to the log's current end, unless its projector is running.

    Raises:
        ForeignLog, CorruptEvent: the log cannot be folded; the message names the position.
        ReadModelUnavailable: the database does not answer.

    """
    async with sole_writer(run, unless=lambda: run.is_running("projector")) as alone:
        if not alone:
            return
        model = run.read_model()
        try:
            await asyncio.to_thread(model.prepare)
            last = (await log.identity()).last
            await fill(log, model, until=last, strict=False, batch_events=run.settings.storage.project_events)
        finally:
            model.close()


async def show_now(run: RunHandle, log: EventLog) -> None:
    """Fold what was just appended; where the read model cannot take it, say so and let the append stand."""
    try:
        await fold_now(run, log)
    except (HindcastError, OSError) as error:
        _log.warning("it stands in the log; the read model does not show it yet", error=str(error))


@asynccontextmanager
async def sole_writer(run: RunHandle, *, unless: Callable[[], bool] = lambda: False) -> AsyncIterator[bool]:
    """Hold the lock of a run's read model. Yields False without it: `unless` became true, or the wait was too long."""
    until = asyncio.get_running_loop().time() + LOCK_WAIT_S
    lock = os.open(run.folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not (held := not unless() and try_lock(lock)):
            if unless() or asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(POLL_S)
        yield held
    finally:
        os.close(lock)


def folded(source: Source, *, watching: Watching = lambda log: log) -> ReadModel:
    """The read model of an archive up to its log's current end. The caller closes it. `watching` observes the reading.

    Raises:
        CorruptEvent, ForeignLog: the log cannot be folded; the message names the position.

    """
    file = _place(source)
    file.parent.mkdir(parents=True, exist_ok=True)
    model = ReadModel(sqlite_address(file), run=source.name)
    try:
        with _alone(file):
            model.prepare()
            try:
                asyncio.run(_fill(source, model, watching))
            except ForeignLog:  # the folder has another log now, or less of it
                model.reset()
                asyncio.run(_fill(source, model, watching))
    except BaseException:
        model.close()
        raise
    return model


def _place(source: Source) -> Path:
    lies = sha256(str(source.folder.resolve()).encode()).hexdigest()[:12]
    return home_folder().absolute() / FOLDER / f"{source.name}-{lies}.sqlite"


async def _fill(source: Source, model: ReadModel, watching: Watching) -> None:
    async with source.connect_log() as log:
        await fill(watching(log), model, strict=False)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Lock a file: one process at a time folds into it, and others wait."""
    with open(f"{file}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
