"""`hindcast log tail / show / grep / stats / resize`. The reading commands print the cursor to continue from.

They check what they read: positions without a gap, hash chains, the identity of the log. With `--json` each event is one
line, and the last line is `{"cursor": POSITION}`.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.events import (
    Chains,
    EventSelection,
    Stats,
    as_line,
    describe,
    describe_stored,
    fields_of,
    learn_tasks,
    select,
)
from hindcast.app.cli.options import PLACES, Limit, RunName, SourceName
from hindcast.app.cli.output import Fields, Output, Report, Table, moment, shorten
from hindcast.app.runs.runs import open_run
from hindcast.app.runs.sources import open_source
from hindcast.core.errors import NoSuchPlace, SettingsError
from hindcast.core.text.plain_values import read_count
from hindcast.events.envelope import Recorded
from hindcast.events.log.places import parse_place, position_of
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read, tail

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
        help="Only events of these tasks: an id, store/buy, store/buy:3 or a pattern such as 'store/*'.",
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
        help=f"Continue after this place, such as the cursor of an earlier command: 0, {PLACES}.",
    ),
]

BAR_EVENTS = 500
"""Events between two updates of the bar."""


async def after_place(log: EventLog, place: str | None) -> int:
    """Return the position that `--from` names; a number may be before the log's first position. Raises NoSuchPlace."""
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
    """Position up to which a command has read."""

    def __init__(self) -> None:
        self.at = 0


def with_log(run: str | None, work: Callable[[EventLog, Cursor], Awaitable[None]]) -> Report:
    """Run `work` on a run's log; returns the cursor. Ctrl-C ends a command that would not end by itself."""
    cursor = Cursor()

    async def connected() -> None:
        async with open_source(run).connect_log() as log:
            await work(log, cursor)

    with suppress(KeyboardInterrupt):
        asyncio.run(connected())
    return Report({"cursor": cursor.at}, [f"cursor {cursor.at}"])


def _event(recorded: Recorded) -> Report:
    """An event on one line."""
    return Report(describe(recorded), [as_line(recorded)])


async def following(
    log: EventLog, cursor: Cursor, *, check: bool = True, bar: bool = False
) -> AsyncGenerator[Recorded, None]:
    """Yield events after the cursor up to the log's current end, and move the cursor. Skips types of a newer version.

    `bar`: show a progress bar, for commands that print only at the end.
    """
    async with aclosing(read(log, after=cursor.at, strict=False, check=check)) as recordeds:
        with progress_bar(shown=bar) as shown:
            after, total = cursor.at, (await log.identity()).last - cursor.at if bar else None
            reading = shown.add_task("reading the log", total=total)
            async for recorded in recordeds:
                cursor.at = recorded.position
                if recorded.position % BAR_EVENTS == 0:
                    shown.update(reading, completed=recorded.position - after)
                yield recorded


app = typer.Typer(
    name="log", help="The event log of a run: tail, show, grep, stats, resize.", no_args_is_help=True
)

FIELD_WIDTH = 140


@app.command("tail")
def tail_log(
    output: Output,
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
) -> Report:
    """Print the last events; with --after, those after a position; with --follow, new ones as they come.

    Example: hindcast log tail --task 'store/*' --policy 3 --from update=10 --follow
    """
    selection = select(types, episode, producer, task=task, policy=policy)

    async def work(log: EventLog, cursor: Cursor) -> None:
        if after is None:
            await _print_last(log, cursor, selection, limit, output)
        else:
            cursor.at = await after_place(log, after)
            await learn_tasks(log, selection, until=cursor.at)
            await _print_next(log, cursor, selection, None if follow else limit, output)
        if follow:
            async for recorded in tail(log, after=cursor.at):
                cursor.at = recorded.position
                if selection.takes(recorded):
                    output.print(_event(recorded))

    return with_log(run, work)


async def _print_last(
    log: EventLog, cursor: Cursor, selection: EventSelection, limit: int, output: Output
) -> None:
    """Print the newest events; a selection searches the whole log for them."""
    if selection.everything:
        cursor.at = max(0, (await log.identity()).last - limit)
    newest: deque[Recorded] = deque(maxlen=limit)
    async for recorded in following(log, cursor, bar=True):
        if selection.takes(recorded):
            newest.append(recorded)
    for recorded in newest:
        output.print(_event(recorded))


async def _print_next(
    log: EventLog, cursor: Cursor, selection: EventSelection, limit: int | None, output: Output
) -> None:
    """Print at most `limit` events after the cursor."""
    printed = 0
    async with aclosing(following(log, cursor)) as recordeds:
        async for recorded in recordeds:
            if selection.takes(recorded):
                output.print(_event(recorded))
                printed += 1
            if limit is not None and printed >= limit:
                break


@app.command("show")
def show_events(
    output: Output,
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
) -> Report:
    """Show one event, or all of an episode, in full. Bytes that do not decode are shown raw.

    Example: hindcast log show 18412 --arrays
    """
    if position is not None and run is None and (at is not None or episode is not None):
        position, run = None, position
    given = None if position is None else read_count(position)
    if position is not None and not given:
        raise SettingsError(f"POSITION {position!r} is not a position: it must be a whole number above 0")
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
                    output.print(_in_full(describe(recorded, arrays=arrays)))
            return
        found = await log.read(after=wanted - 1, limit=1)
        if not found or found[0].position != wanted:
            identity = await log.identity()
            raise SettingsError(
                f"there is no position {wanted} in the log; it holds {identity.first} to {identity.last}"
            )
        output.print(_in_full(describe_stored(found[0], arrays=arrays)))
        cursor.at = wanted

    return with_log(run, work)


def _in_full(plain: dict[str, object]) -> Report:
    """An event in full, indented."""
    return Report(plain, [msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()])


@app.command("grep")
def grep_log(
    output: Output,
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
) -> Report:
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
                    output.print(_match(recorded, found))
                    printed += 1
                    if printed >= limit:
                        break

    return with_log(run, work)


def _match(recorded: Recorded, fields: list[str]) -> Report:
    """One event with its matching fields."""
    matched = (f"{'':>8}  {shorten(field, FIELD_WIDTH)}" for field in fields)
    return Report({**describe(recorded), "matched": fields}, (as_line(recorded), *matched))


@app.command("stats")
def show_stats(
    output: Output,
    run: SourceName = None,
    types: Types = None,
    episode: Episode = None,
    task: Task = None,
    policy: Policy = None,
    producer: Producer = None,
    after: After = None,
) -> Report:
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
        async for recorded in following(log, cursor, check=False, bar=True):
            chains.check(recorded)
            if selection.takes(recorded):
                stats.add(recorded)
        output.print(_counts(stats, chains))

    end = with_log(run, work)
    broken = any(chain.broken for chain in chains.producers.values())
    return end._replace(exit_code=1 if broken else 0)


def _counts(stats: Stats, chains: Chains) -> Report:
    rates = {name: stats.per_minute(number) for name, number in stats.by_type.items()}
    data = {
        **msgspec.to_builtins(stats),
        "events_per_s": stats.per_minute(stats.events) / 60,
        "per_minute_by_type": rates,
        "chains": chains.producers,
    }
    fields = [
        ("events", stats.events),
        ("payload bytes", stats.payload_bytes),
        ("positions", f"{stats.first} to {stats.last}"),
        ("from", moment(stats.began_ns)),
        ("to", moment(stats.ended_ns)),
        ("events/min", stats.per_minute(stats.events)),
    ]
    by_type = [
        (name, number, rates[name], stats.bytes_by_type[name], stats.bytes_by_type[name] // number)
        for name, number in stats.by_type.most_common()
    ]
    heads = ("type", "events", "per minute", "payload bytes", "bytes each")
    listed = [
        (name, chain.events, chain.incarnations, chain.first, chain.last, chain.broken or "whole")
        for name, chain in chains.producers.items()
    ]
    return Report(
        data,
        [
            Fields(fields),
            "",
            Table(heads, by_type, empty="No such event."),
            "",
            Table(("producer", "events", "starts", "first", "last", "chain"), listed),
        ],
    )


@app.command("resize")
def resize(
    size: Annotated[str, typer.Argument(metavar="SIZE", help="New limit: 16GiB, 500MiB, or bytes.")],
    run: RunName = None,
) -> Report:
    """Set the log's size limit, at once and for later starts. A larger limit frees a paused or full run.

    Example: hindcast log resize 16GiB
    """
    from hindcast.app.runs.open_log import UNITS, parse_size, resize_log  # it loads torch

    handle = asyncio.run(resize_log(open_run(run), parse_size(size)))
    limit = handle.settings.log.max_bytes
    text = f"the log of run {handle.name} has a limit of {limit / UNITS['MiB']:,.0f} MiB from now on"
    return Report({"run": handle.name, "max_bytes": limit}, [text])
