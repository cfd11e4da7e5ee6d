"""`hindcast log tail / show / grep / stats`. Each ends with the cursor to go on from.

Reading only, and checked like every reading: positions without a gap, hash chains, the identity of the log. With
`--json` each event is one line, and the last line is `{"cursor": POSITION}`.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Annotated

import msgspec
import typer

from app.cli.events import Selection, Stats, as_line, describe, describe_stored, select
from app.cli.options import Json, Limit, RunOption
from app.cli.output import moment, print_fields, print_json, print_table, print_text
from app.runs import open_run
from core.errors import SettingsError
from events.envelope import Recorded
from events.log import EventLog
from events.reader import read, tail

app = typer.Typer(name="log", help="The log: every event of a run, in order.", no_args_is_help=True)

Types = Annotated[
    list[str] | None,
    typer.Option("--type", help="Only events of this type, such as step.taken or 'episode.*'; repeatable."),
]
Episode = Annotated[str | None, typer.Option("--episode", help="Only events of this episode.")]
After = Annotated[int | None, typer.Option("--after", metavar="POSITION", min=0, help="Start after it.")]


class Cursor:
    """How far a command has read."""

    def __init__(self) -> None:
        self.at = 0


def with_log(run: str | None, work: Callable[[EventLog, Cursor], Awaitable[None]], *, as_json: bool) -> None:
    """Do something with a run's log, then print the cursor. Ctrl-C ends a command that would go on for ever."""
    cursor = Cursor()

    async def connected() -> None:
        async with open_run(run).connect_log() as log:
            await work(log, cursor)

    with suppress(KeyboardInterrupt):
        asyncio.run(connected())
    if as_json:
        print_json({"cursor": cursor.at})
    else:
        print_text(f"cursor {cursor.at}")


def print_event(recorded: Recorded, *, as_json: bool) -> None:
    """One event on one line."""
    if as_json:
        print_json(describe(recorded))
    else:
        print_text(as_line(recorded))


async def following(log: EventLog, cursor: Cursor) -> AsyncGenerator[Recorded, None]:
    """Events after the cursor up to where the log ends now; moves the cursor. Types of a newer version are passed over."""
    async with aclosing(read(log, after=cursor.at, strict=False)) as recordeds:
        async for recorded in recordeds:
            cursor.at = recorded.position
            yield recorded


@app.command("tail")
def tail_log(
    run: RunOption = None,
    types: Types = None,
    episode: Episode = None,
    after: After = None,
    limit: Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new events, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the last events; with --after the ones that follow a position; with --follow new ones as they come.

    Example: hindcast log tail --type 'episode.*' --follow
    """
    selection = select(types, episode)

    async def work(log: EventLog, cursor: Cursor) -> None:
        cursor.at = after or 0
        if after is None:
            await print_last(log, cursor, selection, limit, as_json=as_json)
        else:
            await print_next(log, cursor, selection, None if follow else limit, as_json=as_json)
        if follow:
            async for recorded in tail(log, after=cursor.at):
                cursor.at = recorded.position
                if selection.takes(recorded):
                    print_event(recorded, as_json=as_json)

    with_log(run, work, as_json=as_json)


async def print_last(
    log: EventLog, cursor: Cursor, selection: Selection, limit: int, *, as_json: bool
) -> None:
    """The newest events; where some are left out the whole log is looked through for them."""
    if selection.everything:
        cursor.at = max(0, (await log.identity()).last - limit)
    newest: deque[Recorded] = deque(maxlen=limit)
    async for recorded in following(log, cursor):
        if selection.takes(recorded):
            newest.append(recorded)
    for recorded in newest:
        print_event(recorded, as_json=as_json)


async def print_next(
    log: EventLog, cursor: Cursor, selection: Selection, limit: int | None, *, as_json: bool
) -> None:
    """The events that follow the cursor, at most `limit`."""
    printed = 0
    async with aclosing(following(log, cursor)) as recordeds:
        async for recorded in recordeds:
            if selection.takes(recorded):
                print_event(recorded, as_json=as_json)
                printed += 1
            if limit is not None and printed >= limit:
                break


@app.command("show")
def show_events(
    position: Annotated[int | None, typer.Argument(metavar="[POSITION]", min=1, help="Which event.")] = None,
    run: RunOption = None,
    at: Annotated[int | None, typer.Option("--position", min=1, help="Which event, as an option.")] = None,
    episode: Annotated[str | None, typer.Option("--episode", help="Every event of this episode.")] = None,
    arrays: Annotated[bool, typer.Option("--arrays", help="Token ids and the like in full.")] = False,
    as_json: Json = False,
) -> None:
    """Show one event, or all of an episode, in full. Bytes that do not decode are shown as they are.

    Example: hindcast log show 18412 --arrays
    """
    wanted = position or at
    if (wanted is None) == (episode is None):
        raise SettingsError(
            "log show takes either a POSITION or --episode, for instance: hindcast log show 18412"
        )

    async def work(log: EventLog, cursor: Cursor) -> None:
        if wanted is None:
            selection = select(None, episode)
            async for recorded in following(log, cursor):
                if selection.takes(recorded):
                    print_full(describe(recorded, arrays=arrays), as_json=as_json)
            return
        found = await log.read(after=wanted - 1, limit=1)
        if not found or found[0].position != wanted:
            identity = await log.identity()
            raise SettingsError(
                f"there is no position {wanted} in the log; it holds {identity.first} to {identity.last}"
            )
        print_full(describe_stored(found[0], arrays=arrays), as_json=as_json)
        cursor.at = wanted

    with_log(run, work, as_json=as_json)


def print_full(plain: dict[str, object], *, as_json: bool) -> None:
    """An event in full: one line of JSON, or indented."""
    if as_json:
        print_json(plain)
    else:
        print_text(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())


@app.command("grep")
def grep_log(
    pattern: Annotated[str, typer.Argument(help="Regular expression, looked for in the event as JSON.")],
    run: RunOption = None,
    types: Types = None,
    episode: Episode = None,
    after: After = None,
    limit: Limit = 50,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Capitals do not matter.")] = False,
    as_json: Json = False,
) -> None:
    """Print the events whose envelope or payload matches a pattern.

    Example: hindcast log grep 'no_such_element' --type step.taken --limit 5
    """
    selection = select(types, episode)
    try:
        wanted = re.compile(pattern.encode(), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise SettingsError(f"{pattern!r} is not a regular expression: {error}") from error

    async def work(log: EventLog, cursor: Cursor) -> None:
        cursor.at = after or 0
        printed = 0
        async with aclosing(following(log, cursor)) as recordeds:
            async for recorded in recordeds:
                if selection.takes(recorded) and wanted.search(msgspec.json.encode(recorded.describe())):
                    print_event(recorded, as_json=as_json)
                    printed += 1
                    if printed >= limit:
                        break

    with_log(run, work, as_json=as_json)


@app.command("stats")
def show_stats(
    run: RunOption = None,
    types: Types = None,
    episode: Episode = None,
    after: After = None,
    as_json: Json = False,
) -> None:
    """Count events by type and producer.

    Example: hindcast log stats --json
    """
    selection = select(types, episode)
    stats = Stats()

    async def work(log: EventLog, cursor: Cursor) -> None:
        cursor.at = after or 0
        async for recorded in following(log, cursor):
            if selection.takes(recorded):
                stats.add(recorded)
        print_stats(stats, as_json=as_json)

    with_log(run, work, as_json=as_json)


def print_stats(stats: Stats, *, as_json: bool) -> None:
    """Counts as JSON or as tables."""
    if as_json:
        print_json({**msgspec.to_builtins(stats), "events_per_s": stats.events_per_s})
        return
    print_fields(
        [
            ("events", stats.events),
            ("payload bytes", stats.payload_bytes),
            ("positions", f"{stats.first} to {stats.last}"),
            ("from", moment(stats.began_ns)),
            ("to", moment(stats.ended_ns)),
            ("events/s", stats.events_per_s),
        ]
    )
    print_text("")
    by_type = [(name, number, stats.bytes_by_type[name]) for name, number in stats.by_type.most_common()]
    print_table(("type", "events", "payload bytes"), by_type, empty="No such event.")
    print_text("")
    print_table(("producer", "events"), stats.by_producer.most_common(), empty="")
