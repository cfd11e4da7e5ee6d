"""`hindcast repair`."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.archive import Bars
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json, RunName
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.runs.repair import RepairResult, repair_log
from hindcast.app.runs.runs import open_run
from hindcast.app.runs.stream_repair import Reloaded, repair_in_place

app = typer.Typer()


@app.command("repair")
def repair(
    run: RunName = None,
    archive: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="The run's archive; without it the broker's own files."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; recorded in the log.")] = "the log was damaged",
    as_json: Json = False,
) -> None:
    """Repair a damaged log: from the broker's own block files, or from the run's archive.

    Without an archive, it loads a log that the broker does not load from the block files, and reads it through. From an
    archive, every position gets its old bytes in a new stream; intact events after the archive's end are saved into the archive
    first. The system must not be running. The same command resumes an interrupted repair.

    Example: hindcast repair run-1 --from /backup/run-1
    """
    handle = open_run(run)
    if archive is None:
        reloaded = asyncio.run(repair_in_place(handle, reason=reason))
        if as_json:
            print_json(msgspec.to_builtins(reloaded))
        else:
            _print_reloaded(reloaded)
        return
    with progress_bar(as_json=as_json) as bar:
        bars = Bars(bar)
        done = asyncio.run(
            repair_log(handle, archive, reason=reason, on_event=lambda at: bars.events(at, None))
        )
    if as_json:
        print_json(msgspec.to_builtins(done))
    else:
        _print(done)


def _print_reloaded(done: Reloaded) -> None:
    if done.damage:
        print_text(f"{done.damage}: restored from the broker's block files")
    print_text(f"run {done.run}: positions {done.first} to {done.last} read back intact")
    if not done.damage:
        print_text("the broker loads the log as it is: nothing was repaired")
    print_text(f"Now: hindcast audit {done.run}")


def _print(done: RepairResult) -> None:
    print_text(
        f"run {done.run}: positions {done.first} to {done.last} are in a new stream, read back as archived; "
        f"{done.restored} were damaged or missing, {done.saved} were in the stream alone"
    )
    if done.lost_after is not None:
        print_text(
            f"the events that followed position {done.lost_after} are in neither: the run continues from there"
        )
    if done.displaced_file is not None:
        print_text(f"{done.displaced} events without a place in the log were moved to {done.displaced_file}")
    print_text(f"Now: hindcast audit {done.run} · hindcast rebuild {done.run} --replace")
