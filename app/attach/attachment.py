"""Runs a consumer attached to a run: reads the log from the consumer's position, as role `reader`, which cannot publish.

Consumes every event after the consumer's position. Waits for the log (`log.append_timeout_s` while the broker is away), for
its own lock, and between retries of an event that the consumer refuses. Produces nothing in the log: position, dead letters
and effect are in the consumer's store; its status is in `consumers/NAME.json`.

It pulls events: a slow consumer buffers a few hundred of them, a blocked one blocks only its own thread, and neither affects
the run.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from hindcast.app.attach.effect import AttachedEffect, LiveAttachedEffect
from hindcast.app.attach.store import ConsumerPosition, ConsumerStore, this_host
from hindcast.app.attach.target import Attached, load
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.processes import process_began, read_json, write_json
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.text.plain_values import read_count
from hindcast.events.disk import PRIVATE_FILE, PRIVATE_FOLDER
from hindcast.events.log.consumer import Retries, consume
from hindcast.events.log.port import EventLog, LogIdentity
from hindcast.storage.readmodel.sqlite_address import sqlite_address

STATUS_INTERVAL_S = 0.5
"""Shortest time between two writes of the consumer's status."""
STOP_TIMEOUT_S = 3.0
"""Time that a stop waits for the event that is being applied."""

T = TypeVar("T")
State = Literal["running", "stopped", "failed"]


class AlreadyAttached(HindcastError):
    """A consumer of this name is already attached to the run."""


class NeverBegun(HindcastError):
    """The attachment was stopped before the consumer began; its thread may still be blocked."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of an attachment."""

    target: str
    """MODULE:NAME."""
    name: str
    begin: str = "start"
    """Where a consumer without a position begins: `start`, `live`, or the position before its first event."""
    until: str = ""
    """A position, or `end`, the current end of the log; empty: no end."""
    store: str = ""
    """Database address; empty: SQLite under the run's folder."""
    tries: int = 5
    set_aside: bool = False
    """Whether to skip an event that the consumer refuses in every try; otherwise the consumer stops."""


class AttachmentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Last status of an attached consumer's process, stored in `consumers/NAME.json`."""

    name: str
    target: str
    store: str
    """Database address without its password."""
    host: str
    pid: int
    began: float = 0.0
    """Start time of the process by `process_began`; a later process with the same pid has another one."""
    state: State
    detail: str = ""
    working_on: int | None = None
    working_since: float = 0.0


class AttachmentReport(msgspec.Struct, frozen=True, kw_only=True):
    """How an attachment ended."""

    name: str
    run: str
    position: int
    taken: int
    """Events applied by this process."""
    dead_letters: int
    resumed: bool
    stuck: bool = False
    """Whether it was stopped during an event and did not return from it; the transaction is rolled back."""


class AttachmentSession:
    """Handle through which a caller watches and stops an attachment."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.on_start: Callable[[Attached, ConsumerPosition, int, bool], None] = lambda *_: None
        """Called with the consumer, its position, the log's last position, and whether it was attached before."""
        self.on_progress: Callable[[int], None] = lambda _: None


def consumers_folder(run_folder: Path) -> Path:
    """Folder of the files of consumers attached to a run."""
    return run_folder / "consumers"


def store_url(handle: RunHandle, name: str) -> str:
    """Address of a consumer's default store."""
    return sqlite_address(consumers_folder(handle.folder) / f"{name}.sqlite")


async def attach(
    handle: RunHandle,
    attachment: Attachment,
    session: AttachmentSession,
    *,
    loading: Callable[[str], Attached] = load,
) -> AttachmentReport:
    """Run a consumer until it is stopped, reaches `until`, or fails. `loading` resolves the target's name.

    Raises:
        AlreadyAttached, SettingsError: the consumer cannot begin.
        NeverBegun: the consumer was stopped before it began.
        ConsumerStopped: the consumer refused an event in every try; the message names the position.
        ForeignLog, BrokerUnreachable, StoreUnavailable, ConsumerMoved: the log or the store failed.

    """
    folder = consumers_folder(handle.folder)
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=attachment.name)
    with detached(handle, attachment.name):
        status_writer = _StatusWriter(folder, attachment, handle)
        async with status_writer.reporting(), handle.connect_log("reader") as log:
            found = asyncio.get_running_loop().run_in_executor(thread, loading, attachment.target)
            attached = await _unless_stopped(found, attachment, session)
            store = ConsumerStore(attachment.store or store_url(handle, attachment.name))
            identity = await log.identity()
            kind = LiveAttachedEffect if attachment.set_aside else AttachedEffect
            new = await _beginning(log, identity, attachment)
            effect = kind(attached, store, new=new, thread=thread)
            try:
                resumed = await _unless_stopped(effect.open(), attachment, session)
                session.on_start(attached, effect.standing, identity.last, resumed)
                status_writer.effect = effect
                consuming = consume(
                    log,
                    effect,
                    name=attachment.name,
                    until=_until(attachment, identity),
                    retries=Retries(tries=attachment.tries),
                    on_progress=session.on_progress,
                )
                await _until_stopped(consuming, session.stop)
            finally:
                stuck = not await _leave(effect, thread)
                if not stuck:
                    store.close()
            letters = 0 if stuck else store.dead_letters(handle.name, attachment.name, limit=0)[0]
            return AttachmentReport(
                name=attachment.name,
                run=handle.name,
                position=effect.standing.position,
                taken=effect.taken,
                dead_letters=letters,
                resumed=resumed,
                stuck=stuck,
            )


async def _unless_stopped(work: Awaitable[T], attachment: Attachment, session: AttachmentSession) -> T:
    """Await start-up work of the consumer's code. Raises NeverBegun if a stop comes first."""
    done = await _until_stopped(work, session.stop)
    if done is None:
        raise NeverBegun(
            f"{attachment.name} was stopped before it had begun: its module, its `prepare` or its store had not answered"
        )
    return done


async def _until_stopped(work: Awaitable[T], stop: asyncio.Event) -> T | None:
    """Await `work` and return its result; None if a stop comes first. Does not wait for threads that `work` uses."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait((working, stopping))


async def _leave(effect: AttachedEffect, thread: ThreadPoolExecutor) -> bool:
    """Wait for the consumer's thread to end; returns whether it did."""
    effect.stopping = True
    ended = asyncio.get_running_loop().run_in_executor(thread, lambda: None)
    thread.shutdown(wait=False)
    done, _ = await asyncio.wait((ended,), timeout=STOP_TIMEOUT_S)
    return bool(done)


async def _beginning(log: EventLog, identity: LogIdentity, attachment: Attachment) -> ConsumerPosition:
    """First position of a consumer without a stored one."""
    begin = attachment.begin
    named = {"start": 0, "live": identity.last}
    position = named[begin] if begin in named else read_count(begin)
    if position is None:
        raise SettingsError(f"--from {begin!r} is no place to begin: give start, live or a position")
    if position > identity.last:
        raise SettingsError(
            f"--from {position}: the log of run {log.run} ends at position {identity.last}. Give `live` to begin there."
        )
    before = await log.read(after=position - 1, limit=1) if position else []
    return ConsumerPosition(
        run=log.run,
        name=attachment.name,
        target=attachment.target,
        host=this_host(),
        position=position,
        first_digest=identity.first_digest,
        last_position=position,
        last_digest=sha256(before[0].data).digest() if before else b"",
        state=None,
    )


def _until(attachment: Attachment, identity: LogIdentity) -> int | None:
    if not attachment.until:
        return None
    if attachment.until == "end":
        return identity.last
    until = read_count(attachment.until)
    if until is not None:
        return until
    raise SettingsError(f"--until {attachment.until!r} is neither a position nor `end`")


class _StatusWriter:
    """Writes the consumer's status file."""

    def __init__(self, folder: Path, attachment: Attachment, handle: RunHandle) -> None:
        self.effect: AttachedEffect | None = None
        self._path = folder / f"{attachment.name}.json"
        shown = ConsumerStore(attachment.store or store_url(handle, attachment.name)).shown_url
        self._status = AttachmentStatus(
            name=attachment.name,
            target=attachment.target,
            store=shown,
            host=this_host(),
            pid=os.getpid(),
            state="running",
            began=process_began(os.getpid()) or 0.0,
        )
        self._last: AttachmentStatus | None = None

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """Report `running` until the end of the block, then how it ended."""
        self._write(self._status)
        ticking = asyncio.ensure_future(self._tick())
        state: State = "stopped"
        detail = ""
        try:
            yield
        except NeverBegun:
            raise
        except Exception as error:
            state, detail = "failed", str(error) or type(error).__name__
            raise
        finally:
            ticking.cancel()
            await asyncio.wait((ticking,))
            self._write(msgspec.structs.replace(self._status, state=state, detail=detail))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(STATUS_INTERVAL_S)
            working = self.effect.working_on if self.effect else None
            on, since = working or (None, 0.0)
            if working and time.time() - since < STATUS_INTERVAL_S:
                on, since = None, 0.0  # too recent to report
            self._write(msgspec.structs.replace(self._status, working_on=on, working_since=since))

    def _write(self, status: AttachmentStatus) -> None:
        if status != self._last:
            write_json(self._path, msgspec.to_builtins(status))
            self._last = status


@contextmanager
def detached(handle: RunHandle, name: str) -> Iterator[None]:
    """Hold a consumer name's lock during the block; the system releases it when the process dies.

    Raises:
        AlreadyAttached: a process holds it.

    """
    folder = consumers_folder(handle.folder)
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    file = os.open(folder / f"{name}.lock", os.O_WRONLY | os.O_CREAT, PRIVATE_FILE)
    with os.fdopen(file, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            status = read_json(folder / f"{name}.json") or {}
            raise AlreadyAttached(
                f"a consumer called {name!r} is attached already (pid {status.get('pid', 'unknown')}). Give this one "
                "another --name."
            ) from None
        yield
