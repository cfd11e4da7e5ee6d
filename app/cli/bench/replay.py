"""`hindcast bench replay`."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer

from app.bench.replay import Figure
from app.cli.bench.printing import machine
from app.cli.options import Json
from app.cli.output import print_json, print_table, print_text, say

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
    as_json: Json = False,
) -> None:
    """Cost of folding a long run, into the learner's state and into tables, and of starting where it ends.

    Example: hindcast bench replay --events 100000
    """
    from app.bench.replay_run import measure

    sizes = [size for size in SIZES if size < events] + [events]
    with TemporaryDirectory(prefix="hindcast-replay-", dir=folder) as home:
        figures = asyncio.run(measure(Path(home), events=events, sizes=sizes, said=say))
    if as_json:
        found = [{**msgspec.to_builtins(one), "met": one.met} for one in figures]
        print_json({"machine": machine(), "events": events, "figures": found})
        return
    print_table(
        ("figure", "measured", "from", "to", "unit", "goal"),
        [_row(one) for one in figures],
        empty="nothing was measured",
    )
    for one in figures:
        if one.detail:
            print_text(f"{one.name}: {one.detail}")
    print_text(f"{machine()}, {events:,} events. Folds: 95 % interval; starts and questions: least and most")


def _row(one: Figure) -> tuple[str, ...]:
    goal = "-"
    if one.goal is not None:
        goal = f"{'met' if one.met else 'MISSED'} ({'>=' if one.more_is_better else '<='} {one.goal:,.4g})"
    low, high = ("" if end is None else f"{end:,.4g}" for end in (one.low, one.high))
    return one.name, f"{one.value:,.4g}", low, high, one.unit, goal
