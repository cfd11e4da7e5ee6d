"""`hindcast import DIR`."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.archive import Bars
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.runs.import_archive import ImportedRun, carry_out
from hindcast.app.runs.import_plan import plan_import

app = typer.Typer()


@app.command("import")
def import_run(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the archive.")],
    as_json: Json = False,
) -> None:
    """Import an archived run into this home with the same name, positions, ids and bytes; it can then be resumed.

    The archive is checked before the import, and the stream is read back after it. The same command resumes an interrupted one.

    Example: hindcast import /backup/run-1
    """
    with progress_bar(as_json=as_json) as bar:
        bars = Bars(bar)
        plan = plan_import(folder, on_event=lambda at: bars.events(at, None))
        last = plan.run.last
        done = asyncio.run(carry_out(plan, on_event=lambda at: bars.events(at, last), on_blob=bars.blobs))
    if as_json:
        print_json(msgspec.to_builtins(done))
    else:
        _print(done)


def _print(done: ImportedRun) -> None:
    beside = f", and {', '.join(done.ancestors)}, which it is a fork of" if done.ancestors else ""
    print_text(
        f"run {done.run}{beside}: {done.events} events and {done.blobs} blobs imported into {done.home}; positions "
        f"{done.first} to {done.last} read back as archived"
    )
    for key, value in done.changed.items():
        print_text(f"setting {key} = {value}: the old value was the run's former place")
    if done.missing_blobs:
        print_text(f"{done.missing_blobs} blobs that its events name were not in the archive")
    print_text(f"To look at it: hindcast rebuild {done.run}. To resume it: hindcast start {done.run}")
