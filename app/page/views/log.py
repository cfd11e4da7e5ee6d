"""The events of a run, newest first, each with its fields and links to what it is about.

One page reads a bounded part of the log, backwards from its end: a filter that few events pass shows how far it has searched,
and a link continues from there.
"""

import asyncio
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from hindcast.app.cli.events import describe_stored
from hindcast.app.page.runs import PageQuery
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeRequested,
    StepTaken,
    TaskProposed,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.codec import decode, decode_envelope
from hindcast.events.envelope import Fact, Stored
from hindcast.events.jetstream.accounts import role_of_producer
from hindcast.events.log.port import EventLog
from hindcast.events.registry import BY_CLASS, BY_NAME

PAGE = 50
"""Events of a page."""
CHUNK = 250
"""Events read at once while few pass the filters."""
MOST_READ = 5000
"""Most events read for one page."""
MOST_LINKS = 12
"""Most links of one event; a plan names many episodes."""


class EventLink(msgspec.Struct, frozen=True, kw_only=True):
    """A page about something that an event names."""

    kind: str
    name: str
    path: str
    """Path below the run."""
    query: dict[str, str] = {}


class LoggedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the log."""

    position: int
    occurred_ns: int | None
    """Time by its producer's clock; None: it cannot be decoded."""
    type: str
    producer: str
    entity: str
    links: list[EventLink]
    """At most `MOST_LINKS`."""
    more_links: int
    """References beyond those."""
    event: dict[str, Any]
    """Envelope and payload as plain values; of an event that cannot be decoded the reason and its first bytes."""


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the log page."""

    events: list[LoggedEvent]
    filters: dict[str, str]
    kinds: list[str]
    """Types and patterns of types to choose from, such as `episode.*`."""
    roles: list[str]
    """Roles to choose from."""
    first: int
    """Lowest position that was searched."""
    last: int
    """Highest position that was searched."""
    older: int | None
    """Position at which the next page begins; None: everything in the range was searched."""


def log(ask: PageQuery) -> LogPage:
    """The newest events that match, up to the position that the page answers for.

    Raises:
        SettingsError: no event type has the name, or a position is no number.
        BrokerUnreachable, LogMissing, ForeignLog: the log cannot be read.
    """
    kinds = sorted({*BY_NAME, *(f"{name.partition('.')[0]}.*" for name in BY_NAME)})
    roles: list[str] = sorted({role for one in BY_NAME.values() for role in one.roles})
    kind, role = ask.word("kind"), ask.word("role")
    if kind is not None and not any(fnmatchcase(name, kind) for name in BY_NAME):
        raise SettingsError(
            f"kind={kind[:40]!r} in the address: no event has this type; {advice(kind, kinds)}"
        )
    lowest, highest = ask.number("from"), ask.number("to")
    last = min(ask.position, ask.position if highest is None else highest)
    first = max(1, lowest or 1)
    # a question is answered in a thread of its own, which has no event loop
    stored, reached = asyncio.run(_newest(ask, kind=kind, role=role, first=first, last=last))
    names = ("kind", "role", "from", "to")
    return LogPage(
        events=[_logged(one) for one in stored],
        filters={name: word for name in names if (word := ask.word(name))},
        kinds=kinds,
        roles=roles,
        first=reached,
        last=last,
        older=reached - 1 if reached > first else None,
    )


async def _newest(
    ask: PageQuery, *, kind: str | None, role: str | None, first: int, last: int
) -> tuple[list[Stored], int]:
    """Matching events, newest first, and the lowest position that was searched."""
    found: list[Stored] = []
    end, bound = last, max(first, last - MOST_READ + 1)
    async with ask.run.connect_log() as opened:
        while end >= bound and len(found) < PAGE:
            start = max(bound, end - (CHUNK if kind or role else PAGE) + 1)
            for stored in reversed(await _read(opened, start, end)):
                if _matches(stored, kind, role):
                    found.append(stored)
                if len(found) == PAGE:
                    return found, stored.position
            end = start - 1
    return found, end + 1


async def _read(opened: EventLog, start: int, end: int) -> list[Stored]:
    """The events from `start` to `end`, however few a request returns."""
    found: list[Stored] = []
    after = start - 1
    while after < end:
        part = await opened.read(after=after, limit=end - after)
        if not part:
            break
        found += part
        after = part[-1].position
    return found


def _matches(stored: Stored, kind: str | None, role: str | None) -> bool:
    if kind is None and role is None:
        return True
    try:
        envelope = decode_envelope(stored)
    except HindcastError:
        return False
    return (kind is None or fnmatchcase(envelope.type, kind)) and (
        role is None or role == (role_of_producer(envelope.producer) or envelope.producer)
    )


def _logged(stored: Stored) -> LoggedEvent:
    event = describe_stored(stored)
    links: list[EventLink] = []
    if "error" not in event:
        recorded = decode(stored)
        assert recorded is not None
        links = list({(one.kind, one.name): one for one in _links(stored.position, recorded.fact)}.values())
    return LoggedEvent(
        position=stored.position,
        occurred_ns=event.get("occurred_ns"),
        type=event.get("type", "not readable"),
        producer=event.get("producer", ""),
        entity=event.get("entity", ""),
        links=links[:MOST_LINKS],
        more_links=max(0, len(links) - MOST_LINKS),
        event=event,
    )


def _links(position: int, fact: Fact) -> Iterator[EventLink]:
    """What an event is, then what it refers to."""
    match fact:
        case StepTaken():
            yield _lineage("step", position)
        case TaskProposed(task=task):
            yield _lineage("task", task.id)
        case EpisodeRequested(task=task, episode=episode):
            yield EventLink(kind="episode", name=episode, path=f"/episodes/{episode}")
            yield _lineage("task", task.id)
        case BatchPlanned(batch=batch):
            yield _lineage("batch", batch)
        case UpdateApplied(model=model, update=update) | UpdateSkipped(model=model, update=update):
            if model == POLICY:
                yield _lineage("update", update)
        case WeightsPublished(model=model, version=version) if model == POLICY:
            yield _lineage("policy", version)
        case _:
            pass
    for path, kind in BY_CLASS[type(fact)].refs:
        for value in _values(fact, path.split(".")):
            match kind:
                case "episode":
                    yield EventLink(kind="episode", name=str(value), path=f"/episodes/{value}")
                    if path == "episode":
                        yield EventLink(kind="its lineage", name=str(value), path=f"/lineage/episode/{value}")
                case "task" | "batch" | "update" | "policy":
                    yield _lineage(kind, value)
                case "position":
                    at = str(value)
                    yield EventLink(kind="position", name=at, path="/log", query={"from": at, "to": at})
                case "page":
                    pass  # a step's page shows it


def _lineage(kind: str, name: object) -> EventLink:
    return EventLink(kind=kind, name=str(name), path=f"/lineage/{kind}/{name}")


def _values(fact: Any, path: list[str]) -> Iterator[object]:
    """The values of a field, of a nested struct's field, or of that field of each in a list; none where it is absent."""
    if fact is None or fact is msgspec.UNSET or isinstance(fact, bytes):
        return
    if isinstance(fact, list | tuple):
        for one in fact:
            yield from _values(one, path)
    elif not path:
        yield fact
    else:
        yield from _values(getattr(fact, path[0]), path[1:])
