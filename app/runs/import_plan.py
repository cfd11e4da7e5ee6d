"""Plan of an import: reads the archive through and plans a run for each run that recorded events in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hindcast.app.runs.runs import Fork, RunHandle, list_runs, open_run, plan_run
from hindcast.app.settings.configuration import Layer, flatten, merge_recorded
from hindcast.app.system.home import home_folder
from hindcast.core.errors import SettingsError
from hindcast.events.archive.check import check_archive
from hindcast.events.archive.errors import ArchiveDamaged
from hindcast.events.archive.manifest import Manifest, load
from hindcast.events.catalogue import RunForked
from hindcast.events.codec import decode
from hindcast.events.envelope import Envelope, Stored
from hindcast.events.log.run_identity import beginning_in
from hindcast.storage.archive.archived_blobs import BlobNeeds

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
    fork = None if forked is None else Fork(parent=forked.parent, at=forked.at_position)
    values = flatten(started.settings, f"the archive of run {run}")
    there = merge_recorded([Layer(source="the archive", values=values)], recipe=started.recipe).settings
    changed: dict[str, Any] = {
        key: value for key, value in HERE.items() if key in values and values[key] != value
    }
    if there.log.max_bytes < SLACK * size_bytes:
        changed["log.max_bytes"] = SLACK * size_bytes
    layers = [Layer(source="run.started", values=values), Layer(source="hindcast import", values=changed)]
    resolved = merge_recorded(layers, recipe=started.recipe)
    return plan_run(resolved, name=run, home=home, fork=fork), changed
