"""Repair a log that the broker does not load, from the broker's own block files.

    stream not served ──> (broker stopped, descriptions deleted) ──> stream created over its blocks ──> read through
        ──> log.repaired

Only the broker's description of the stream is created again, never its events. They are then read through link by link and
compared with what other readers of the home have read. During the repair the run cannot be opened (`importing.json`).
"""

import asyncio
import shutil

import msgspec
import structlog

from hindcast.app.runs.runs import IMPORTING, RunHandle, UnfinishedImport, unfinished
from hindcast.app.runs.witnesses import known_witnesses, require_witnessed
from hindcast.app.system.broker import stopped_broker
from hindcast.app.system.processes import write_json
from hindcast.app.system.system import check_home_is_free
from hindcast.core.errors import CorruptEvent, ForeignLog
from hindcast.events.catalogue import LogRepaired
from hindcast.events.jetstream.accounts import QUEUES
from hindcast.events.jetstream.broker_store import (
    describe_damage,
    describe_stream_damage,
    forget_descriptions,
    queue_folder,
)
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.port import LogIdentity
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read

logger = structlog.get_logger(__name__)


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the repair."""

    run: str
    first: int
    last: int
    """Last position that was read through, before log.repaired."""
    damage: str
    """Description of the damage; empty: the broker loads the log as it is."""


async def repair_in_place(handle: RunHandle, *, reason: str) -> Reloaded:
    """Make the broker load the run's stream again, and read it through. Nothing else may work on the run.

    Raises:
        StartFailed: a system runs in this home.
        CorruptEvent: the blocks lack a part of the log; it can be restored from an archive.

    """
    check_home_is_free(handle.home)
    note = handle.folder / IMPORTING
    begun = unfinished(handle.folder)
    if begun is not None and begun.archive:
        raise ForeignLog(
            f"a repair of run {handle.name} from {begun.archive} is under way. Go on with: {begun.command}"
        )
    damage = await reload_stream(handle)
    identity = await _read_through(handle)
    if damage or begun is not None:
        why = ": ".join(filter(None, (reason, damage)))
        await record_repair(handle, LogRepaired(first=identity.first, last=identity.last, reason=why))
        note.unlink(missing_ok=True)
    return Reloaded(run=handle.name, first=identity.first, last=identity.last, damage=damage)


async def reload_stream(handle: RunHandle) -> str:
    """Make the broker serve the run's stream from its block files if it does not; returns a description of the damage."""
    stored = handle.stored_stream
    if stored is None:
        return ""
    async with handle.connect("admin") as connection:
        why = await JetStreamLog(connection, handle.name, handle.settings.log).why_not_loaded()
    if not why:
        return ""
    damage = describe_stream_damage(stored, why)
    begun = UnfinishedImport(archive="", command=f"hindcast repair {handle.name}", repair=True)
    write_json(handle.folder / IMPORTING, msgspec.to_builtins(begun))

    def forget() -> None:
        with stopped_broker(handle.home):
            forget_descriptions(stored)

    await asyncio.to_thread(forget)
    async with handle.connect("admin") as connection:
        await JetStreamLog.create_or_open(connection, handle.name, handle.settings.log, first=handle.first)
    return damage


async def renew_lost_queues(handle: RunHandle) -> list[str]:
    """Delete work queues that the broker did not load, so that their roles create them again; returns their damage.

    Call it before any role works on the run. A new queue delivers every message again, and workers skip finished ones.
    """
    stored = handle.stored_stream
    kept = [] if stored is None else [queue for queue in QUEUES if queue_folder(stored, queue).is_dir()]
    if stored is None or not kept:
        return []
    async with handle.connect("repairer") as connection:
        log = await JetStreamLog.open(connection, handle.name, handle.settings.log)
        served = {reader.name for reader in await log.served()}
        identity = await log.identity()
    lost = [queue_folder(stored, queue) for queue in kept if queue not in served]
    damages = [describe_damage(folder) for folder in lost]
    for folder, damage in zip(lost, damages, strict=True):
        await asyncio.to_thread(shutil.rmtree, folder)
        why = f"the broker did not load the work queue {folder.name}, which is made anew: {damage}"
        logger.warning(why)
        await record_repair(handle, LogRepaired(first=identity.first, last=identity.last, reason=why))
    return damages


async def _read_through(handle: RunHandle) -> LogIdentity:
    """Read every event that the broker holds, check its chain, and compare it with what others have read."""
    settings = handle.settings.log
    async with handle.connect("reader") as connection:
        log = await JetStreamLog.open(connection, handle.name, settings)
        identity = await log.identity()
        try:
            async for _ in read(log, after=max(1, identity.first) - 1, strict=False):
                pass
            witnesses = await asyncio.to_thread(known_witnesses, handle)
            await require_witnessed(log, witnesses, folder=handle.folder)
        except (CorruptEvent, ForeignLog) as error:
            raise CorruptEvent(
                f"the broker serves the log of run {handle.name} again, but its block files do not hold all of it: {error}    "
                f"With an archive: hindcast repair {handle.name} --from ARCHIVE"
            ) from error
    return identity


async def record_repair(handle: RunHandle, fact: LogRepaired) -> None:
    """Record the repair in the stream before the run can be opened; an unrecorded repair is done again."""
    settings = handle.settings.log
    async with handle.connect("repairer") as connection:
        log = await JetStreamLog.open(connection, handle.name, settings)
        async with Publisher(
            log, producer="repair.1", code_rev=handle.code_rev, settings=settings
        ) as publisher:
            await publisher.decide(fact, entity=handle.name)
