"""`hindcast archive RUN DIR`, `archive check DIR`, `archive show DIR`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import Progress

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_fields, print_json, print_table, print_text
from hindcast.app.cli.suggestions import SuggestingGroup
from hindcast.app.runs.archive import archive_source
from hindcast.app.runs.sources import open_source
from hindcast.events.archive.manifest import load, segment_path
from hindcast.events.archive.reader import ArchiveReader
from hindcast.storage.archive.archiver import ArchiveReport
from hindcast.storage.archive.check import WholeCheck, check_whole

WRITING = "write"
MIB = 1024 * 1024
DESCRIBED = 5
"""Number of blobs that are named one by one."""


class _Group(SuggestingGroup):
    """`archive RUN DIR` is short for `archive write RUN DIR`, the most common subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Treat a first word that is no subcommand as a run."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [WRITING, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
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


@app.command(WRITING)
def archive_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Which run (or another archive).")],
    folder: Folder,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events, until Ctrl-C.")
    ] = False,
    without_pages: Annotated[
        bool,
        typer.Option("--without-pages", help="Omit snapshots of pages; no computation needs them."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a run's log and blobs into a folder. Run again, it continues from the folder's end; the run may be running.

    Ctrl-C stops it and keeps what was written. Exit code 1 if blobs that the log names are missing or damaged.

    Example: hindcast archive write run-1 /backup/run-1    (`write` may be left out)
    """
    source = open_source(run)
    with progress_bar(as_json=as_json) as bar:
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
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print_written(report)
    if report.missing:
        raise typer.Exit(1)


def _print_written(report: ArchiveReport) -> None:
    pages = "" if report.pages else " (pages left out)"
    print_text(
        f"run {report.run}: {report.events} events and {report.blobs} blobs{pages} written; {report.folder} holds positions "
        f"{report.first} to {report.last} in {report.segments} segments"
    )
    for text in report.damaged[:DESCRIBED]:
        print_text(text)
    for blob in report.missing[:DESCRIBED]:
        print_text(
            f"missing: blob {blob.sha256[:16]}… ({blob.size} bytes), named at position {blob.position}"
        )
    if report.missing:
        print_text(
            f"{len(report.missing)} blobs that the log names are not in the archive: the run's blob store lacks them. "
            "Restore them there and run the same command again."
        )


@app.command("check")
def check(folder: Folder, as_json: Json = False) -> None:
    """Check an archive without a broker: read every byte of log and blobs and compare every digest.

    Exit code 1 if something changed since it was written. To check the meaning of the events, too: hindcast audit DIR

    Example: hindcast archive check /backup/run-1 --json
    """
    with progress_bar(as_json=as_json) as bar:
        bars = Bars(bar)
        last = ArchiveReader(folder).last if not bar.disable else None
        found = check_whole(folder, on_event=lambda at: bars.events(at, last), on_blob=bars.blobs)
    if as_json:
        print_json({**msgspec.to_builtins(found.log), **_blob_numbers(found)})
    else:
        _print_check(found)
    if found.defects:
        raise typer.Exit(1)


def _blob_numbers(found: WholeCheck) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(found)
    del plain["log"]
    return plain


def _print_check(found: WholeCheck) -> None:
    log = found.log
    print_text(
        f"run {log.run}: positions {log.first} to {log.last}, {log.events} events in {log.segments} segments "
        f"({log.bytes / MIB:.1f} MiB), {found.blobs} blobs ({found.blob_bytes / MIB:.1f} MiB)"
        f"{'' if found.pages else ', pages left out'}"
    )
    if log.unfinished_bytes and not log.defects:
        print_text(
            f"after position {log.last} follow {log.unfinished_bytes} bytes without a complete frame: left by a crash, or being "
            "written now. The archiver drops them and continues from there."
        )
    if found.not_copied:
        print_text(f"{found.not_copied} blobs of the newest events are not copied yet")
    for defect in found.defects:
        print_text(f"{defect.where}, position {defect.position}: {defect.what}")
    print_text("DAMAGED" if found.defects else f"whole; rolling digest {log.digest}")


@app.command("show")
def show(folder: Folder, as_json: Json = False) -> None:
    """Show the content of an archive by its manifest.

    Example: hindcast archive show /backup/run-1
    """
    reader = ArchiveReader(folder)
    manifest = load(folder)
    if as_json:
        plain = msgspec.to_builtins(manifest)
        print_json({**plain, "folder": str(folder), "last": reader.last})
        return
    blobs = manifest.blobs
    print_fields(
        [
            ("run", manifest.run),
            ("fork of", ", ".join(f"{one.run} up to {one.until}" for one in manifest.lineage)),
            ("positions", f"{manifest.first} to {reader.last}"),
            ("blobs", f"up to position {blobs.through}" + ("" if blobs.pages else ", without pages")),
            ("missing blobs", len(blobs.missing)),
        ]
    )
    print_text("")
    rows = [(segment.first, segment.last, segment.bytes, segment.sha256) for segment in manifest.segments]
    if reader.last >= manifest.next:
        size = segment_path(folder, manifest.next).stat().st_size
        rows.append((manifest.next, reader.last, size, "open"))
    print_table(("first", "last", "bytes", "sha256"), rows, empty="No event yet.")
