"""`hindcast rebuild`."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar, watched
from hindcast.app.cli.options import Json, SourceName
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.system.home import home_folder
from hindcast.app.system.private_home import users_umask
from hindcast.core.errors import ReplayDiverged
from hindcast.core.scratch import scratch_folder
from hindcast.storage.readmodel.rebuild import RebuildReport, rebuild
from hindcast.storage.readmodel.sqlite_address import sqlite_address

app = typer.Typer()


@app.command("rebuild")
def rebuild_run(
    run: SourceName = None,
    replace: Annotated[bool, typer.Option("--replace", help="If they differ, replace the live one.")] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="FILE",
            help="SQLite file to create or compare instead; without it, an archive's rebuild is not kept.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Rebuild the read model from the log and compare it with the live one, byte for byte.

    Creates the live one first if there is none. Exit code 3 if they differ, whether or not it was replaced.

    Example: hindcast rebuild run-1 --json
    """
    source = open_source(run)
    home = home_folder()
    with scratch_folder() as scratch, users_umask(into or home, home):
        url = _database(source, into, scratch)
        report = asyncio.run(_rebuild(source, url, replace=replace, as_json=as_json))
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print_report(report)
    if not report.identical:
        raise typer.Exit(ReplayDiverged.exit_code)


def _database(source: Source, into: Path | None, scratch: Path) -> str:
    """Address of the live read model: the run's own. An archive has none, so that two fresh ones are compared."""
    if into is None and isinstance(source, RunHandle):
        return source.database_url
    return sqlite_address(into or scratch / "readmodel.sqlite")


async def _rebuild(source: Source, url: str, *, replace: bool, as_json: bool) -> RebuildReport:
    async with source.connect_log() as log:
        with progress_bar(as_json=as_json) as bar:
            return await rebuild(watched(log, bar, "folding"), url, replace=replace)


def _print_report(report: RebuildReport) -> None:
    if report.notice:
        print_text(report.notice)
    if report.filled and not report.replaced:
        print_text(f"the read model was made from {report.filled} events")
    print_text(
        f"run {report.run}: {report.events} events up to position {report.position} folded again, "
        f"{report.events_per_s:.0f} events/s"
    )
    if report.identical:
        print_text("identical")
        return
    for difference in report.differing:
        print_text(
            f"{difference.table}: {difference.rows} rows differ; the first, as {', '.join(difference.columns)}:"
        )
        print_text(f"  live     {difference.live or 'missing'}")
        print_text(f"  rebuilt  {difference.rebuilt or 'not in the log'}")
    what = "it was folded again" if report.replaced else "`hindcast rebuild --replace` folds it again"
    print_text(f"DIFFERENT: the read model does not follow from the log. The log is the truth; {what}.")
