"""Shared by the `hindcast log` commands: options that select events, and reading up to a cursor."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Annotated

import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.events import as_line, describe
from hindcast.app.cli.options import PLACES
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.runs.sources import open_source
from hindcast.core.errors import NoSuchPlace
from hindcast.core.text.plain_values import read_count
from hindcast.events.envelope import Recorded
from hindcast.events.log.places import parse_place, position_of
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read

Types = Annotated[
    list[str] | None,
    typer.Option("--type", help="Only events of this type, such as step.taken or 'episode.*'; repeatable."),
]
Episode = Annotated[str | None, typer.Option("--episode", help="Only events of this episode.")]
Producer = Annotated[
    str | None,
    typer.Option("--producer", help="Only events of this process, such as learner.1 or 'actor.*'."),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="Only events of the tasks: an id, store/buy, store/buy:3 or a pattern such as 'store/*'.",
    ),
]
Policy = Annotated[
    int | None,
    typer.Option("--policy", help="Only events of this policy version: steps, ends, weights, batches."),
]
After = Annotated[
    str | None,
    typer.Option(
        "--from",
        "--after",
        metavar="PLACE",
        help=f"Continue after it, for instance an earlier cursor: 0, {PLACES}.",
    ),
]

BAR_EVENTS = 500
"""Events between two updates of the bar."""


async def after_place(log: EventLog, place: str | None) -> int:
    """The position that `--from` means; a number may be before the log's beginning. Raises NoSuchPlace."""
    position = 0 if place is None else read_count(place)
    if position is None:
        assert place is not None
        return await position_of(log, parse_place(place))
    last = (await log.identity()).last
    if position > last:
        raise NoSuchPlace(
            f"nothing can follow position {place}: the log of run {log.run} ends at position {last}. Give an earlier position; "
            "if this one is the cursor of an earlier command on this run, the log has lost events since."
        )
    return position


class Cursor:
    """Position that a command has read up to."""

    def __init__(self) -> None:
        self.at = 0


def with_log(run: str | None, work: Callable[[EventLog, Cursor], Awaitable[None]], *, as_json: bool) -> None:
    """Run `work` on a run's log, then print the cursor. Ctrl-C ends a command that would not end by itself."""
    cursor = Cursor()

    async def connected() -> None:
        async with open_source(run).connect_log() as log:
            await work(log, cursor)

    with suppress(KeyboardInterrupt):
        asyncio.run(connected())
    if as_json:
        print_json({"cursor": cursor.at})
    else:
        print_text(f"cursor {cursor.at}")


def print_event(recorded: Recorded, *, as_json: bool) -> None:
    """Print one event on one line."""
    if as_json:
        print_json(describe(recorded))
    else:
        print_text(as_line(recorded))


async def following(
    log: EventLog, cursor: Cursor, *, check: bool = True, silent: bool = True
) -> AsyncGenerator[Recorded, None]:
    """Yield events after the cursor up to the log's current end, and move the cursor. Skips types of a newer version.

    `silent` False: shows a bar on a terminal, for commands that print only at the end.
    """
    async with aclosing(read(log, after=cursor.at, strict=False, check=check)) as recordeds:
        with progress_bar(as_json=silent) as bar:
            total = None if silent else (await log.identity()).last - cursor.at
            reading, after = bar.add_task("reading the log", total=total), cursor.at
            async for recorded in recordeds:
                cursor.at = recorded.position
                if not silent and recorded.position % BAR_EVENTS == 0:
                    bar.update(reading, completed=recorded.position - after)
                yield recorded
