"""Import an archive into a broker: the same run with the same positions, ids, subjects and bytes, ready to be resumed.

    read the archive through ──> blobs ──> events ──> read back and compare ──> settings.toml

The archive of a fork also holds its ancestors' events: they become runs of this home as far as they are needed, unless the
home has them. A run becomes part of the home last, with its settings. Until then `importing.json` names the import that
fills the stream, and the same command resumes it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from hindcast.app.runs.runs import (
    IMPORTING,
    Fork,
    RunHandle,
    UnfinishedImport,
    list_runs,
    open_run,
    plan_run,
    unfinished,
    write_down,
)
from hindcast.app.settings.configuration import Layer, flatten_recorded, merge_recorded
from hindcast.app.system.home import home_folder
from hindcast.app.system.processes import write_json
from hindcast.core.errors import BlobCorrupt, BlobMissing, CorruptEvent, ForeignLog, SettingsError
from hindcast.core.text.toml import as_toml
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.check import check_archive
from hindcast.events.archive.errors import ArchiveDamaged
from hindcast.events.archive.format import split
from hindcast.events.archive.manifest import Manifest, NamedBlob, load
from hindcast.events.catalogue import RunForked
from hindcast.events.codec import decode
from hindcast.events.envelope import Envelope, Record, Stored
from hindcast.events.jetstream.stream_log import JetStreamLog, LogMissing
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.run_identity import beginning_in
from hindcast.events.subjects import everything
from hindcast.storage.archive.archived_blobs import BlobNeeds, CopyResult, settle
from hindcast.storage.archive.archiver import archive_blobs
from hindcast.storage.blobs.store import BlobStore

SLACK = 2
"""A stream's size limit is at least this multiple of the imported bytes, so that the run can continue."""
HERE = {
    "log.url": "",
    "log.domain": "",
    "log.port": 0,
    "log.replicas": 1,
    "storage.blobs": "",
    "storage.database": "",
    "storage.archive": "",
}
"""Settings that say where a run is stored; an imported run is stored in this home."""


class RunImport(msgspec.Struct, frozen=True, kw_only=True):
    """One run's events in an archive, and the run that they become."""

    handle: RunHandle
    first: int
    last: int
    changed: dict[str, Any]
    known: bool
    """Whether this home has the run already."""


class ImportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A complete archive and the runs that its import creates."""

    folder: Path
    parts: tuple[RunImport, ...]
    needs: BlobNeeds
    kept: BlobNeeds
    """Blobs that the run needs, without snapshots of pages."""
    events: int

    @property
    def run(self) -> RunImport:
        """The archive's own run; its ancestors come before it."""
        return self.parts[-1]


class _Gathered:
    """Facts collected while an archive is checked."""

    def __init__(self, starts: set[int]) -> None:
        self._starts = starts
        self.beginnings: dict[int, Stored] = {}
        self.bytes: dict[int, int] = {}
        """Bytes of the events that each run recorded, by the first position of the run's part."""
        self.needs = BlobNeeds(pages=True)
        self.kept = BlobNeeds(pages=False)
        self._at = 0

    def take(self, stored: Stored, envelope: Envelope) -> None:
        """Take the next event."""
        if stored.position in self._starts:
            self._at = stored.position
            self.beginnings[self._at] = stored
        size = len(stored.data) + len(stored.subject) + len(stored.id)
        self.bytes[self._at] = self.bytes.get(self._at, 0) + size
        self.needs.take(stored.position, envelope)
        self.kept.take(stored.position, envelope)


def plan_import(folder: Path, *, on_event: Callable[[int], None]) -> ImportPlan:
    """Read an archive through and plan its import. Blocking.

    Raises:
        ArchiveMissing, ArchiveDamaged, ArchiveUnknown: it is not complete.
        SettingsError: this home has the run already, or its settings do not hold here.
        ForeignLog: it does not begin with the start of a run.

    """
    home, manifest = home_folder(), load(folder)
    stretches = _stretches(manifest)
    gathered = _Gathered({first for _, first, _ in stretches})

    def take(stored: Stored, envelope: Envelope) -> None:
        gathered.take(stored, envelope)
        on_event(stored.position)

    report = check_archive(folder, take=take)
    if report.defects:
        worst = report.defects[0]
        raise ArchiveDamaged(
            f"the archive in {folder} is damaged and was not imported: {worst.where}, position {worst.position}: {worst.what} "
            f"({len(report.defects)} defects). Run: hindcast archive check {folder}"
        )
    existing, parts = set(list_runs(home)), list[RunImport]()
    for run, first, until in stretches:
        last = report.last if until is None else until
        start = gathered.beginnings.get(first)
        known = run in existing
        if known and until is None:
            raise SettingsError(
                f"there is a run {run!r} in {home} already. Commands can read the archive without an import (hindcast verify "
                f"{folder}); to have both runs, set HINDCAST_HOME to another folder."
            )
        handle, changed = _handle(home, run, start, size_bytes=gathered.bytes.get(first, 0), known=known)
        parts.append(RunImport(handle=handle, first=first, last=last, changed=changed, known=known))
    return ImportPlan(
        folder=folder, parts=tuple(parts), needs=gathered.needs, kept=gathered.kept, events=report.events
    )


def _stretches(manifest: Manifest) -> list[tuple[str, int, int | None]]:
    """Name, first and last position of each run's own events, oldest run first; last None: to the end."""
    stretches: list[tuple[str, int, int | None]] = []
    first = manifest.first
    for ancestor in manifest.lineage:
        if ancestor.until >= first:
            stretches.append((ancestor.run, first, ancestor.until))
            first = ancestor.until + 1
    return [*stretches, (manifest.run, first, None)]


def _handle(
    home: Path, run: str, start: Stored | None, *, size_bytes: int, known: bool
) -> tuple[RunHandle, dict[str, Any]]:
    """The run that a part becomes, and the settings that change for it."""
    if known:
        return open_run(run, home=home), {}
    started = beginning_in(start, run=run)
    assert start is not None
    fact = decode(start)
    forked = fact.fact if fact is not None and isinstance(fact.fact, RunForked) else None
    fork = None
    if forked is not None:
        left_out = "" if forked.derived is None else forked.derived.choice
        fork = Fork(parent=forked.parent, at=forked.at_position, without=left_out)
    values = flatten_recorded(started.settings, f"the archive of run {run}")
    there = merge_recorded([Layer(source="the archive", values=values)], recipe=started.recipe).settings
    changed: dict[str, Any] = {
        key: value for key, value in HERE.items() if key in values and values[key] != value
    }
    if there.log.max_bytes < SLACK * size_bytes:
        changed["log.max_bytes"] = SLACK * size_bytes
    layers = [Layer(source="run.started", values=values), Layer(source="hindcast import", values=changed)]
    resolved = merge_recorded(layers, recipe=started.recipe)
    return plan_run(resolved, name=run, home=home, fork=fork), changed


class ImportedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an import."""

    run: str
    home: str
    first: int
    last: int
    events: int
    """Events appended, ancestors' included; fewer than in the archive if an interrupted import was resumed."""
    blobs: int
    missing_blobs: int
    """Blobs named by events but not in the archive; pages, too, if it was made without them."""
    ancestors: tuple[str, ...]
    """Ancestor runs that the import created because the run is a fork of them."""
    changed: dict[str, str]
    """Settings that differ from the run's first event, and why."""


async def carry_out(
    plan: ImportPlan, *, on_event: Callable[[int], None], on_blob: Callable[[int], None]
) -> ImportedRun:
    """Create the runs. After an interruption, the same command resumes the import.

    Raises:
        ForeignLog: the broker holds another log under the run's name, or the parent of a fork is another run.
        BrokerUnreachable, LogFull, DiskFull: nothing is lost; the same command resumes the import.

    """
    source, appended = ArchiveLog(plan.folder), 0
    copied, missing = CopyResult(), 0
    for part in plan.parts:
        if part.known:
            await _require_same(part, source)
            continue
        if part.handle.fork is not None and part.handle.fork.parent not in list_runs(part.handle.home):
            raise ForeignLog(
                f"run {part.handle.name} is a fork of {part.handle.fork.parent} at position {part.handle.fork.at}, and neither "
                f"the archive in {plan.folder} nor this home has that run. Import its archive first."
            )
        missing += len(await _copy_blobs(plan, part, copied, on_blob))
        if part.handle.fork is not None:
            missing += await asyncio.to_thread(_keep_blobs, plan, part, copied)
        appended += await fill_stream(plan.folder, part, on_event)
        write_down(part.handle)
        (part.handle.folder / IMPORTING).unlink(missing_ok=True)
    run = plan.run
    return ImportedRun(
        run=run.handle.name,
        home=str(run.handle.home),
        first=run.first,
        last=run.last,
        events=appended,
        blobs=copied.copied,
        missing_blobs=missing,
        ancestors=tuple(part.handle.name for part in plan.parts[:-1] if not part.known),
        changed={key: as_toml(value) for key, value in run.changed.items()},
    )


async def _copy_blobs(
    plan: ImportPlan, part: RunImport, copied: CopyResult, on_blob: Callable[[int], None]
) -> tuple[NamedBlob, ...]:
    wanted = [blob for blob in plan.needs.needed.values() if part.first <= blob.position <= part.last]
    stop = Event()
    try:
        return await asyncio.to_thread(
            settle,
            BlobNeeds(pages=True, needed=wanted),
            archive_blobs(plan.folder),
            BlobStore(part.handle.folder / "blobs"),
            copied,
            stop=stop,
            on_blob=on_blob,
        )
    finally:
        stop.set()


def _keep_blobs(plan: ImportPlan, part: RunImport, copied: CopyResult) -> int:
    """Copy into a fork's folder the blobs that its prefix keeps, as forking does: its parent may have deleted them or will.

    Returns the number of blobs found nowhere. Blocking.
    """
    own, archived, missing = part.handle.blobs, archive_blobs(plan.folder), 0
    for named in plan.kept.needed.values():
        if named.position >= part.first:
            continue
        try:
            own.keep(named.ref)
        except (BlobMissing, BlobCorrupt):
            try:
                own.put(archived.get(named.ref))
                copied.copied += 1
            except (BlobMissing, BlobCorrupt):
                missing += 1
    return missing


async def fill_stream(folder: Path, part: RunImport, on_event: Callable[[int], None]) -> int:
    """Append the events that a run's stream lacks, and compare the whole stream with the archive; returns how many.

    Raises:
        ForeignLog: the stream is not the beginning of this part of the archive.
        CorruptEvent: it does not read back as it was written.

    """
    handle, settings = part.handle, part.handle.settings.log
    source, note = ArchiveLog(folder), handle.folder / IMPORTING
    async with handle.connect("importer") as importer, handle.connect("admin") as admin:
        log = JetStreamLog(importer, handle.name, settings)
        begun = await _has_begun(log)
        if begun and unfinished(handle.folder) is None:
            raise ForeignLog(
                f"the broker of {handle.home} holds a log of a run {handle.name!r} already, which this home does not know "
                "as a run. Set HINDCAST_HOME to another folder, or restore that run's folder."
            )
        if unfinished(handle.folder) is None:
            place = str(folder.absolute())
            write_json(
                note, msgspec.to_builtins(UnfinishedImport(archive=place, command=f"hindcast import {place}"))
            )
        await JetStreamLog.create_or_open(admin, handle.name, settings, first=part.first)
        last = (await log.identity()).last
        if last > part.last or await fingerprint(log, part.first, last) != await fingerprint(
            source, part.first, last
        ):
            raise ForeignLog(
                f"the broker of {handle.home} holds another log of run {handle.name!r} than the archive in {folder}: "
                "another import was interrupted there. Set HINDCAST_HOME to another folder."
            )
        async with aclosing(source.tail(after=last)) as batches:
            position = last
            while position < part.last:
                batch = [stored for stored in await anext(batches) if stored.position <= part.last]
                for records in split(batch):
                    await _append(log, records)
                position = batch[-1].position
                on_event(position)
        if await fingerprint(log, part.first, part.last) != await fingerprint(source, part.first, part.last):
            raise CorruptEvent(
                f"what was imported into run {handle.name} does not read back as the archive in {folder} has it. "
                "Check the disk of the broker, set HINDCAST_HOME to another folder and import again."
            )
        return part.last - last


async def _append(log: JetStreamLog, events: Sequence[Stored]) -> None:
    """Append all events at their own positions, or none."""
    records = [Record(stored.subject, stored.data, stored.id) for stored in events]
    first = events[0].position
    before = await log.last_under(everything(log.run))
    expect = Expectation(subject=everything(log.run), last=before.position if before else 0)
    positions = await log.append(records, expect=expect)
    if positions[0] != first:
        raise ForeignLog(
            f"position {first} of run {log.run} was to be imported, but got position {positions[0]}: another program appends "
            "to its stream. Set HINDCAST_HOME to another folder and import there."
        )


async def _has_begun(log: JetStreamLog) -> bool:
    try:
        await log.identity()
    except LogMissing:
        return False
    return True


async def _require_same(part: RunImport, source: EventLog) -> None:
    """Check that an ancestor in this home equals the one in the archive, up to where it was forked."""
    async with part.handle.connect_log() as log:
        identity = await log.identity()
        mine = await log.read(after=part.last - 1, limit=1) if identity.last >= part.last else []
        theirs = await source.read(after=part.last - 1, limit=1)
        if not mine or (mine[0].id, mine[0].data) != (theirs[0].id, theirs[0].data):
            raise ForeignLog(
                f"the archive holds a fork of run {log.run} at position {part.last}, but this home's run {log.run} holds "
                "another event there, or ends before: it is another run of that name. Set HINDCAST_HOME to another folder."
            )


async def fingerprint(log: EventLog, first: int, last: int) -> bytes:
    """Digest of all stored positions, subjects, ids and bytes from one position to another."""
    digest = sha256()
    position = first - 1
    async with aclosing(log.tail(after=position)) as batches:
        while position < last:
            for stored in await anext(batches):
                if stored.position <= last:
                    digest.update(msgspec.msgpack.encode(stored))
            position = stored.position
    return digest.digest()
