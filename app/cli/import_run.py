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
    """Bring an archived run into this home: same name, positions, ids and bytes; it can be gone on with.

    The archive is checked before and what was written is read back after. Interrupted, the same command goes on.

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
        print_text(f"setting {key} = {value}: it said where the run lived before")
    if done.missing_blobs:
        print_text(f"{done.missing_blobs} blobs that its events name were not in the archive")
    print_text(f"Look at it: hindcast rebuild {done.run}. Go on with it: hindcast start {done.run}")
