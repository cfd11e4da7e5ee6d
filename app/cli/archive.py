"""`hindcast archive / import / repair`: writes runs into files and restores them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import Progress

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import RunName
from hindcast.app.cli.output import Block, Fields, Report, Table
from hindcast.app.cli.suggestions import SuggestingGroup
from hindcast.app.runs.archive import archive_source
from hindcast.app.runs.repair import Reloaded, RepairResult, repair_in_place, repair_log
from hindcast.app.runs.runs import open_run
from hindcast.app.runs.sources import open_source
from hindcast.core.text.counts import count_of
from hindcast.events.archive.manifest import Manifest, load, segment_path
from hindcast.events.archive.reader import ArchiveReader
from hindcast.storage.archive.archiver import ArchiveReport
from hindcast.storage.archive.check import WholeCheck, check_whole

WRITING = "write"
MIB = 1024 * 1024
DESCRIBED = 5
"""Maximum number of missing blobs that are named singly."""


class _Group(SuggestingGroup):
    """`archive RUN DIR` is short for `archive write RUN DIR`, the most common subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Treat a first word that is no subcommand as a run."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [WRITING, *args]
        return super().parse_args(ctx, args)


app = typer.Typer()
archive_app = typer.Typer(
    name="archive",
    help="A run in files, readable without a broker: hindcast archive RUN DIR",
    cls=_Group,
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the archive.")]


class Bars:
    """Two progress bars: events, then blobs."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._events = bar.add_task("events", total=None)
        self._blobs = bar.add_task("blobs", total=None, visible=False)
        self._most = 0

    def events(self, position: int, last: int | None) -> None:
        """Show the position in the log."""
        self._bar.update(self._events, completed=position, total=last)

    def blobs(self, left: int) -> None:
        """Show the number of blobs left."""
        self._most = max(self._most, left)
        self._bar.update(self._blobs, completed=self._most - left, total=self._most, visible=True)


@archive_app.command(WRITING)
def archive_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, or the folder of another archive.")],
    folder: Folder,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events, until Ctrl-C.")
    ] = False,
    without_pages: Annotated[
        bool,
        typer.Option("--without-pages", help="Omit page snapshots; no computation needs them."),
    ] = False,
) -> Report:
    """Write a run's log and blobs into a folder. Run again, it continues from the folder's end; the run may be running.

    Ctrl-C stops it and keeps what was written. Exit code 1 if blobs that the log names are missing or damaged.

    Example: hindcast archive write run-1 /backup/run-1    (`write` may be left out)
    """
    source = open_source(run)
    with progress_bar() as bar:
        bars = Bars(bar)
        report = asyncio.run(
            archive_source(
                source,
                folder,
                follow=follow,
                pages=not without_pages,
                on_event=bars.events,
                on_blob=bars.blobs,
            )
        )
    return Report(report, _written_text(report), exit_code=1 if report.missing else 0)


def _written_text(report: ArchiveReport) -> Iterator[Block]:
    pages = "" if report.pages else " (pages left out)"
    yield (
        f"run {report.run}: {count_of(report.events, 'event')} and {count_of(report.blobs, 'blob')}{pages} written; "
        f"{report.folder} holds positions "
        f"{report.first} to {report.last} in {report.segments} segments"
    )
    yield from report.damaged[:DESCRIBED]
    for blob in report.missing[:DESCRIBED]:
        yield f"missing: blob {blob.sha256[:16]}… ({blob.size} bytes), named at position {blob.position}"
    if report.missing:
        yield (
            f"{len(report.missing)} blobs that the log names are not in the archive: the run's blob store lacks them. "
            "Restore them there and run the same command again."
        )


@archive_app.command("check")
def check(folder: Folder) -> Report:
    """Check an archive without a broker: read every byte of log and blobs and compare every digest.

    Exit code 1 if something changed since it was written. To check the meaning of the events, too: hindcast audit DIR

    Example: hindcast archive check /backup/run-1 --json
    """
    with progress_bar() as bar:
        bars = Bars(bar)
        last = ArchiveReader(folder).last if not bar.disable else None
        found = check_whole(folder, on_event=lambda at: bars.events(at, last), on_blob=bars.blobs)
    blobs = {name: value for name, value in msgspec.to_builtins(found).items() if name != "log"}
    return Report(
        msgspec.to_builtins(found.log) | blobs,
        _check_text(found),
        exit_code=1 if found.defects else 0,
    )


def _check_text(found: WholeCheck) -> Iterator[Block]:
    log = found.log
    yield (
        f"run {log.run}: positions {log.first} to {log.last}, {count_of(log.events, 'event')} in {count_of(log.segments, 'segment')} "
        f"({log.bytes / MIB:.1f} MiB), {count_of(found.blobs, 'blob')} ({found.blob_bytes / MIB:.1f} MiB)"
        f"{'' if found.pages else ', pages left out'}"
    )
    if log.unfinished_bytes and not log.defects:
        yield (
            f"after position {log.last} follow {log.unfinished_bytes} bytes without a complete frame: left by a crash, or being "
            "written now. The archiver drops them and continues from there."
        )
    if found.not_copied:
        yield f"{found.not_copied} blobs of the newest events are not copied yet"
    for defect in found.defects:
        yield f"{defect.where}, position {defect.position}: {defect.what}"
    yield "DAMAGED" if found.defects else f"whole; rolling digest {log.digest}"


@archive_app.command("show")
def show(folder: Folder) -> Report:
    """Show the content of an archive by its manifest.

    Example: hindcast archive show /backup/run-1
    """
    reader = ArchiveReader(folder)
    manifest = load(folder)
    plain = msgspec.to_builtins(manifest)
    return Report({**plain, "folder": str(folder), "last": reader.last}, _manifest_text(reader, manifest))


def _manifest_text(reader: ArchiveReader, manifest: Manifest) -> Iterator[Block]:
    blobs = manifest.blobs
    yield Fields(
        [
            ("run", manifest.run),
            ("fork of", ", ".join(f"{one.run} up to {one.until}" for one in manifest.lineage)),
            ("positions", f"{manifest.first} to {reader.last}"),
            ("blobs", f"up to position {blobs.through}" + ("" if blobs.pages else ", without pages")),
            ("missing blobs", len(blobs.missing)),
        ]
    )
    yield ""
    rows = [(segment.first, segment.last, segment.bytes, segment.sha256) for segment in manifest.segments]
    if reader.last >= manifest.next:
        size = segment_path(reader.folder, manifest.next).stat().st_size
        rows.append((manifest.next, reader.last, size, "open"))
    yield Table(("first", "last", "bytes", "sha256"), rows, empty="No event yet.")


@app.command("repair")
def repair(
    run: RunName = None,
    archive: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="The run's archive; default: the broker's own files."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; recorded in the log.")] = "the log was damaged",
) -> Report:
    """Repair a damaged log: from the broker's own block files, or from the run's archive.

    Without an archive, it restores a log that the broker cannot load from the block files, and reads all of it. From an
    archive, every position gets its old bytes in a new stream; intact events after the archive's end are saved into the archive
    first. The system must not be running. The same command resumes an interrupted repair.

    Example: hindcast repair run-1 --from /backup/run-1
    """
    handle = open_run(run)
    if archive is None:
        reloaded = asyncio.run(repair_in_place(handle, reason=reason))
        return Report(reloaded, _reloaded_text(reloaded))
    with progress_bar() as bar:
        bars = Bars(bar)
        done = asyncio.run(
            repair_log(handle, archive, reason=reason, on_event=lambda at: bars.events(at, None))
        )
    return Report(done, _repaired_text(done))


def _reloaded_text(done: Reloaded) -> Iterator[Block]:
    if done.damage:
        yield f"{done.damage}: restored from the broker's block files"
    yield f"run {done.run}: positions {done.first} to {done.last} read back intact"
    if not done.damage:
        yield "the broker loads the log as it is: nothing was repaired"
    yield f"Now: hindcast audit {done.run}"


def _repaired_text(done: RepairResult) -> Iterator[Block]:
    yield (
        f"run {done.run}: positions {done.first} to {done.last} are in a new stream, read back as archived; "
        f"{done.restored} were damaged or missing, {done.saved} were only in the stream"
    )
    if done.lost_after is not None:
        yield f"the events after position {done.lost_after} are in neither: the run continues from there"
    if done.displaced_file is not None:
        yield f"{done.displaced} events without a place in the log were moved to {done.displaced_file}"
    yield f"Now: hindcast audit {done.run} · hindcast rebuild {done.run} --replace"


app.add_typer(archive_app)
