"""`hindcast log tail / show / grep / stats / resize`. The reading commands print the cursor to continue from.

They check what they read: positions without a gap, hash chains, the identity of the log. With `--json` each event is one
line, and the last line is `{"cursor": POSITION}`.
"""

import asyncio
import re
from collections import deque
from contextlib import aclosing
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.event_selection import EventSelection, learn_tasks, select
from hindcast.app.cli.events import Chains, Stats, describe, describe_stored, fields_of
from hindcast.app.cli.log_cursor import (
    After,
    Cursor,
    Episode,
    Policy,
    Producer,
    Task,
    Types,
    after_place,
    following,
    print_event,
    with_log,
)
from hindcast.app.cli.options import Json, Limit, RunName, SourceName
from hindcast.app.cli.output import moment, print_fields, print_json, print_table, print_text, shorten
from hindcast.app.runs.resize_log import UNITS, parse_size, resize_log
from hindcast.app.runs.runs import open_run
from hindcast.core.errors import SettingsError
from hindcast.core.text.plain_values import read_count
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import tail

app = typer.Typer(
    name="log", help="The event log of a run: tail, show, grep, stats, resize.", no_args_is_help=True
)

FIELD_WIDTH = 140


@app.command("tail")
def tail_log(
    run: SourceName = None,
    types: Types = None,
    episode: Episode = None,
    task: Task = None,
    policy: Policy = None,
    producer: Producer = None,
    after: After = None,
    limit: Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the last events; with --after, those after a position; with --follow, new ones as they come.

    Example: hindcast log tail --task 'store/*' --policy 3 --from update=10 --follow
    """
    selection = select(types, episode, producer, task=task, policy=policy)

    async def work(log: EventLog, cursor: Cursor) -> None:
        if after is None:
            await print_last(log, cursor, selection, limit, as_json=as_json)
        else:
            cursor.at = await after_place(log, after)
            await learn_tasks(log, selection, until=cursor.at)
            await print_next(log, cursor, selection, None if follow else limit, as_json=as_json)
        if follow:
            async for recorded in tail(log, after=cursor.at):
                cursor.at = recorded.position
                if selection.takes(recorded):
                    print_event(recorded, as_json=as_json)

    with_log(run, work, as_json=as_json)


async def print_last(
    log: EventLog, cursor: Cursor, selection: EventSelection, limit: int, *, as_json: bool
) -> None:
    """Print the newest events; a selection searches the whole log for them."""
    if selection.everything:
        cursor.at = max(0, (await log.identity()).last - limit)
    newest: deque[Recorded] = deque(maxlen=limit)
    async for recorded in following(log, cursor, silent=as_json):
        if selection.takes(recorded):
            newest.append(recorded)
    for recorded in newest:
        print_event(recorded, as_json=as_json)


async def print_next(
    log: EventLog, cursor: Cursor, selection: EventSelection, limit: int | None, *, as_json: bool
) -> None:
    """Print at most `limit` events after the cursor."""
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
    position: Annotated[
        str | None,
        typer.Argument(
            metavar="POSITION",
            help="The event. With --position or --episode the only argument is RUN.",
        ),
    ] = None,
    run: SourceName = None,
    at: Annotated[int | None, typer.Option("--position", min=1, help="The event, as an option.")] = None,
    episode: Annotated[str | None, typer.Option("--episode", help="Every event of this episode.")] = None,
    arrays: Annotated[bool, typer.Option("--arrays", help="Arrays such as token ids in full.")] = False,
    as_json: Json = False,
) -> None:
    """Show one event, or all of an episode, in full. Bytes that do not decode are shown raw.

    Example: hindcast log show 18412 --arrays
    """
    if position is not None and run is None and (at is not None or episode is not None):
        position, run = None, position
    given = None if position is None else read_count(position)
    if position is not None and not given:
        raise SettingsError(f"POSITION {position!r} is no position: it must be a whole number above 0")
    wanted = at if position is None else given
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
    """Print an event in full: one line of JSON, or indented."""
    if as_json:
        print_json(plain)
    else:
        print_text(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())


@app.command("grep")
def grep_log(
    pattern: Annotated[
        str,
        typer.Argument(
            help="Regular expression, matched with each field written as `payload.result=timeout`."
        ),
    ],
    run: SourceName = None,
    types: Types = None,
    episode: Episode = None,
    task: Task = None,
    policy: Policy = None,
    producer: Producer = None,
    after: After = None,
    limit: Limit = 50,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case.")] = False,
    as_json: Json = False,
) -> None:
    """Print events with a field that matches a pattern, and those fields.

    Example: hindcast log grep 'result=no_such_element' --type step.taken --limit 5
    """
    selection = select(types, episode, producer, task=task, policy=policy)
    try:
        wanted = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise SettingsError(f"{pattern!r} is not a regular expression: {error}") from error

    async def work(log: EventLog, cursor: Cursor) -> None:
        cursor.at = await after_place(log, after)
        await learn_tasks(log, selection, until=cursor.at)
        printed = 0
        async with aclosing(following(log, cursor)) as recordeds:
            async for recorded in recordeds:
                if not selection.takes(recorded):
                    continue
                found = [field for field in fields_of(recorded) if wanted.search(field)]
                if found:
                    print_match(recorded, found, as_json=as_json)
                    printed += 1
                    if printed >= limit:
                        break

    with_log(run, work, as_json=as_json)


def print_match(recorded: Recorded, fields: list[str], *, as_json: bool) -> None:
    """Print one event with its matching fields."""
    if as_json:
        print_json({**describe(recorded), "matched": fields})
        return
    print_event(recorded, as_json=False)
    for field in fields:
        print_text(f"{'':>8}  {shorten(field, FIELD_WIDTH)}")


@app.command("stats")
def show_stats(
    run: SourceName = None,
    types: Types = None,
    episode: Episode = None,
    task: Task = None,
    policy: Policy = None,
    producer: Producer = None,
    after: After = None,
    as_json: Json = False,
) -> None:
    """Count events and bytes by type with their rates, and check every producer's hash chain.

    Exit code 1 if a chain is broken: bytes were changed, or events were lost.

    Example: hindcast log stats --json
    """
    selection = select(types, episode, producer, task=task, policy=policy)
    stats, chains = Stats(), Chains(after=0)

    async def work(log: EventLog, cursor: Cursor) -> None:
        nonlocal chains
        cursor.at = await after_place(log, after)
        chains = Chains(after=cursor.at)
        await learn_tasks(log, selection, until=cursor.at)
        async for recorded in following(log, cursor, check=False, silent=as_json):
            chains.check(recorded)
            if selection.takes(recorded):
                stats.add(recorded)
        print_stats(stats, chains, as_json=as_json)

    with_log(run, work, as_json=as_json)
    if any(chain.broken for chain in chains.producers.values()):
        raise typer.Exit(1)


def print_stats(stats: Stats, chains: Chains, *, as_json: bool) -> None:
    """Print counts, rates and chains as JSON or as tables."""
    rates = {name: stats.per_minute(number) for name, number in stats.by_type.items()}
    if as_json:
        print_json(
            {
                **msgspec.to_builtins(stats),
                "events_per_s": stats.per_minute(stats.events) / 60,
                "per_minute_by_type": rates,
                "chains": chains.producers,
            }
        )
        return
    print_fields(
        [
            ("events", stats.events),
            ("payload bytes", stats.payload_bytes),
            ("positions", f"{stats.first} to {stats.last}"),
            ("from", moment(stats.began_ns)),
            ("to", moment(stats.ended_ns)),
            ("events/min", stats.per_minute(stats.events)),
        ]
    )
    print_text("")
    by_type = [
        (name, number, rates[name], stats.bytes_by_type[name], stats.bytes_by_type[name] // number)
        for name, number in stats.by_type.most_common()
    ]
    heads = ("type", "events", "per minute", "payload bytes", "bytes each")
    print_table(heads, by_type, empty="No such event.")
    print_text("")
    listed = [
        (name, chain.events, chain.incarnations, chain.first, chain.last, chain.broken or "whole")
        for name, chain in chains.producers.items()
    ]
    print_table(("producer", "events", "starts", "first", "last", "chain"), listed, empty="")


@app.command("resize")
def resize(
    size: Annotated[str, typer.Argument(metavar="SIZE", help="New limit: 16GiB, 500MiB, or bytes.")],
    run: RunName = None,
    as_json: Json = False,
) -> None:
    """Set the log's size limit, at once and for later starts. A larger limit frees a paused or full run.

    Example: hindcast log resize 16GiB
    """
    handle = asyncio.run(resize_log(open_run(run), parse_size(size)))
    limit = handle.settings.log.max_bytes
    if as_json:
        print_json({"run": handle.name, "max_bytes": limit})
    else:
        print_text(f"the log of run {handle.name} has a limit of {limit / UNITS['MiB']:,.0f} MiB from now on")
