"""Repair a log that the broker does not load, from its own block files; restore a damaged one from its archive.

    stream not served ──> (broker stopped, descriptions deleted) ──> stream created over its blocks ──> read through
        ──> log.repaired

The first repair creates only the broker's description of the stream again, never its events. They are then read through
link by link and compared with what other readers of the home have read.

    archive, checked ──┐
    stream, as far as it follows the archive ──> archive ──> (stream deleted) ──> new stream, read back ──> log.repaired

The second makes a new stream under the old name with the old bytes at every position. Events in the stream after the
archive's end are saved first, as long as they follow it link by link; later ones cannot be trusted. Events that are in
neither part are moved to a file and never lost silently, because a broker that lost its end hands out positions twice.
During a repair the run cannot be opened (`importing.json`); after an interruption, the same
command resumes the repair.
"""

import asyncio
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import structlog

from hindcast.app.runs.import_archive import RunImport, fill_stream, fingerprint
from hindcast.app.runs.runs import IMPORTING, RunHandle, UnfinishedImport, unfinished
from hindcast.app.runs.witnesses import forget_noted, known_witnesses, require_witnessed
from hindcast.app.system.broker import stopped_broker
from hindcast.app.system.processes import write_json
from hindcast.app.system.system import check_home_is_free
from hindcast.core.errors import CorruptEvent, ForeignLog, HindcastError
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.check import CheckReport, check_archive
from hindcast.events.archive.errors import ArchiveDamaged
from hindcast.events.archive.manifest import load
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.catalogue import LogRepaired
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import Envelope, Stored
from hindcast.events.jetstream.accounts import QUEUES
from hindcast.events.jetstream.broker_store import (
    describe_damage,
    describe_stream_damage,
    forget_descriptions,
    queue_folder,
)
from hindcast.events.jetstream.stream_log import JetStreamLog, LogMissing
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.port import EventLog, LogIdentity
from hindcast.events.log.reader import read

logger = structlog.get_logger(__name__)
DISPLACED = "displaced"
"""File of events that no longer have a place in the log: MessagePack, one map per event."""
READ_EVENTS = 500


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
        async with handle.publisher(log, "repair.1") as publisher:
            await publisher.decide(fact, entity=handle.name)


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a repair."""

    run: str
    first: int
    last: int
    """Last position of the new stream, before log.repaired."""
    restored: int
    """Events that were missing or changed in the damaged stream; all events if an interrupted repair was resumed."""
    saved: int
    """Events that only the stream held, now in the archive."""
    displaced: int
    """Events of the damaged stream without a place in the log."""
    displaced_file: str | None
    lost_after: int | None
    """Position after which the stream once held unreadable events; None: nothing is known to be lost."""


class Findings(msgspec.Struct, kw_only=True):
    """Content of a damaged stream, compared with its archive."""

    same: int = 0
    """Events equal to the archive's."""
    following: list[Stored] = msgspec.field(default_factory=list)
    """Events that follow the archive's end without a gap."""
    displaced: list[Stored] = msgspec.field(default_factory=list)
    lost_after: int | None = None


async def repair_log(
    handle: RunHandle, archive: Path, *, reason: str, on_event: Callable[[int], None]
) -> RepairResult:
    """Create the run's stream again from the archive. Nothing else may work on the run.

    Raises:
        StartFailed: a system runs in this home.
        ArchiveMissing, ArchiveDamaged, ForeignLog: the archive is incomplete or of another run.

    """
    check_home_is_free(handle.home)
    await reload_stream(handle)
    chains = ChainChecker(after=load(archive).first - 1)
    report = await asyncio.to_thread(_check, handle, archive, chains, on_event)
    first = handle.first
    note = handle.folder / IMPORTING
    findings = Findings()
    async with handle.connect("repairer") as connection:
        stream = JetStreamLog(connection, handle.name, handle.settings.log)
        begun = unfinished(handle.folder)
        if begun is None or not begun.archive:
            findings = await inspect(stream, ArchiveLog(archive), report, chains)
            laid_aside = await asyncio.to_thread(_lay_aside, handle, findings.displaced)
            await asyncio.to_thread(_save, handle, archive, findings.following)
            place = archive.absolute()
            begun = UnfinishedImport(
                archive=str(place),
                command=f"hindcast repair {handle.name} --from {place}",
                repair=True,
                displaced=len(findings.displaced),
                displaced_file=laid_aside,
            )
            write_json(note, msgspec.to_builtins(begun))
            await stream.delete()
        elif not await _is_beginning(stream, archive, first=first):
            await stream.delete()
    last = report.last + len(findings.following)
    part = RunImport(handle=handle, first=first, last=last, changed={}, known=True)
    await fill_stream(archive, part, on_event)
    await record_repair(handle, LogRepaired(first=first, last=last, reason=reason))
    forget_noted(handle)
    note.unlink()
    return RepairResult(
        run=handle.name,
        first=first,
        last=last,
        restored=last - first + 1 - findings.same - len(findings.following),
        saved=len(findings.following),
        displaced=begun.displaced,
        displaced_file=begun.displaced_file,
        lost_after=findings.lost_after,
    )


def _check(
    handle: RunHandle, archive: Path, chains: ChainChecker, on_event: Callable[[int], None]
) -> CheckReport:
    """Check that the archive is complete and of this run; afterwards `chains` knows the end of every producer's chain."""
    manifest = load(archive)
    if manifest.run != handle.name:
        raise ForeignLog(
            f"the archive in {archive} is run {manifest.run!r}'s, not {handle.name!r}'s. Nothing was changed."
        )
    if manifest.first > handle.first:
        raise ForeignLog(
            f"the archive in {archive} begins with position {manifest.first}, the run's own events with {handle.first}: a log "
            "can only be restored from its beginning. Nothing was changed."
        )

    def take(stored: Stored, envelope: Envelope) -> None:
        chains.link(stored.position, envelope, _digest(stored))
        on_event(stored.position)

    report = check_archive(archive, take=take)
    if report.defects:
        worst = report.defects[0]
        raise ArchiveDamaged(
            f"the archive in {archive} is damaged itself: {worst.where}, position {worst.position}: {worst.what}. Nothing was "
            f"changed. Run: hindcast archive check {archive}"
        )
    return report


async def inspect(stream: EventLog, archive: EventLog, report: CheckReport, chains: ChainChecker) -> Findings:
    """Read what a damaged stream still delivers; `chains` knows the archive's producers."""
    findings = Findings()
    try:
        end = (await stream.identity()).last
    except LogMissing:
        return findings
    after, sound = 0, True
    last = report.last
    while after < end:
        batch = await stream.read(after=after, limit=READ_EVENTS)
        if not batch:
            after += 1  # a broker delivers nothing from a damaged place on, although it has later events
            continue
        kept = {stored.position: stored for stored in await _archived(archive, batch, until=report.last)}
        for stored in batch:
            if stored.position <= report.last:
                theirs = kept.get(stored.position)
                if theirs is not None and (theirs.id, theirs.data) == (stored.id, stored.data):
                    findings.same += 1
                elif theirs is None or theirs.id != stored.id:
                    findings.displaced.append(stored)
            elif sound and _follows(stored, last, chains, run=stream.run):
                findings.following.append(stored)
                last = stored.position
            else:
                sound = False
                findings.displaced.append(stored)
        after = batch[-1].position
    if end > last:
        findings.lost_after = last
    return findings


async def _archived(archive: EventLog, batch: list[Stored], *, until: int) -> list[Stored]:
    """The archive's events at the positions of a batch of the stream."""
    found: list[Stored] = []
    after, last = batch[0].position - 1, min(batch[-1].position, until)
    while after < last:
        found += await archive.read(after=after, limit=last - after)
        after = found[-1].position
    return found


def _follows(stored: Stored, last: int, chains: ChainChecker, *, run: str) -> bool:
    """Whether an event is the next after position `last`, undamaged, of this run, and linked into its producer's chain."""
    if stored.position != last + 1:
        return False
    try:
        envelope = decode_envelope(stored)
        if envelope.run != run:
            return False
        chains.link(stored.position, envelope, _digest(stored))
    except HindcastError:
        return False
    return True


def _digest(stored: Stored) -> bytes:
    return sha256(stored.data).digest()


def _lay_aside(handle: RunHandle, displaced: list[Stored]) -> str | None:
    """Write events that lose their place to a file; returns its path."""
    if not displaced:
        return None
    number = 1 + len(list(handle.folder.glob(f"{DISPLACED}-*.msgpack")))
    place = handle.folder / f"{DISPLACED}-{number}.msgpack"
    place.write_bytes(
        b"".join(msgspec.msgpack.encode(msgspec.structs.asdict(stored)) for stored in displaced)
    )
    return str(place)


def _save(handle: RunHandle, archive: Path, following: list[Stored]) -> None:
    """Append to the archive the events that only the stream holds."""
    manifest = load(archive)
    writer = ArchiveWriter.open(
        archive,
        run=manifest.run,
        lineage=manifest.lineage,
        segment_bytes=handle.settings.storage.segment_bytes,
    )
    try:
        writer.append(following)
        writer.note()
    finally:
        writer.close()


async def _is_beginning(stream: JetStreamLog, archive: Path, *, first: int) -> bool:
    """Whether a stream, as far as it goes, equals the archive from `first` on."""
    try:
        end = (await stream.identity()).last
        log = ArchiveLog(archive)
        if end > (await log.identity()).last:
            return False
        return await fingerprint(stream, first, end) == await fingerprint(log, first, end)
    except HindcastError:
        return False
