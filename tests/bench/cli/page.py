"""`hindcast bench page`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.printing import figures_report
from hindcast.app.cli.output import Report, say
from hindcast.core.scratch import scratch_folder

app = typer.Typer()


@app.command("page")
def page(
    events: Annotated[
        int,
        typer.Option(min=10_000, help="Length of the run; a million takes 600 MB of disk and some minutes."),
    ] = 1_000_000,
    repeats: Annotated[int, typer.Option(min=2, help="How often each page is asked for.")] = 10,
    folder: Annotated[
        Path | None, typer.Option(help="A home to keep the made-up run in, for the next time.")
    ] = None,
) -> Report:
    """What the page of a long run costs: the questions behind each address, and the first contentful paint in Chromium.

    Example: hindcast bench page --events 100000
    """
    from bench.page import measure

    with scratch_folder() as temporary:
        home = folder or temporary
        figures = asyncio.run(measure(home, events=events, repeats=repeats, said=say))
    return figures_report(figures, events=events, note="95 % interval of the mean")
