"""`hindcast bench replay`."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bench.cli.printing import figures_report
from hindcast.app.cli.output import Report, say

SIZES = (10_000, 100_000, 1_000_000)

app = typer.Typer()


@app.command("replay")
def replay(
    events: Annotated[
        int,
        typer.Option(min=50_000, help="Length of the run; a million takes 2 GB of disk and some minutes."),
    ] = SIZES[-1],
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the made-up run is kept for as long; default: a temporary folder."),
    ] = None,
) -> Report:
    """Cost of folding a long run, into the learner's state and into tables, and of starting where it ends.

    Example: hindcast bench replay --events 100000
    """
    from bench.replay_run import measure

    sizes = [size for size in SIZES if size < events] + [events]
    with TemporaryDirectory(prefix="hindcast-replay-", dir=folder) as home:
        figures = asyncio.run(measure(Path(home), events=events, sizes=sizes, said=say))
    return figures_report(
        figures, events=events, note="Folds: 95 % interval; starts and questions: least and most"
    )
