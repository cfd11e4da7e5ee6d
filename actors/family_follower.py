"""Follows some families of the log from a position on, in order, without decoding the others.

Roles that fold a small part of the log use it: an actor for its weights, a judge for the tasks, the curriculum for
everything but pages. Every batch carries the position read up to, also when it contains no event, so that a reader knows
how far its view goes. Positions are checked to be contiguous; hash chains are left to readers of the whole log.
"""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing

import msgspec

from hindcast.core.errors import ForeignLog
from hindcast.events.codec import decode
from hindcast.events.envelope import Recorded, Stored
from hindcast.events.log.port import EventLog
from hindcast.events.subjects import family_of

LOOK_BACK_EVENTS = 500
"""Events read at once, backwards."""


class FollowedEvents(msgspec.Struct, frozen=True):
    """Some events of the requested families, and the position read up to."""

    recorded: list[Recorded]
    position: int
    """Position of the last event read, of any family."""


def _select(batch: list[Stored], *, after: int, families: Collection[str]) -> FollowedEvents:
    recorded = []
    position = after
    for stored in batch:
        if stored.position != position + 1:
            raise ForeignLog(
                f"the log continues with position {stored.position} after {position}: events are missing or the "
                "log was swapped under a running process. Run: hindcast doctor"
            )
        position = stored.position
        if family_of(stored.subject) in families:
            event = decode(stored, strict=False)
            if event is not None:
                recorded.append(event)
    return FollowedEvents(recorded, position)


async def follow(
    log: EventLog, *, after: int, families: Collection[str]
) -> AsyncGenerator[FollowedEvents, None]:
    """Events of `families` after `after`, then new ones as they arrive, forever.

    Raises:
        ForeignLog: positions are not contiguous.
        CorruptEvent: an event of one of the families does not decode.
    """
    position = after
    async with aclosing(log.tail(after=after)) as batches:
        async for batch in batches:
            followed = _select(batch, after=position, families=families)
            position = followed.position
            yield followed


async def read_families(
    log: EventLog, *, after: int, families: Collection[str]
) -> AsyncGenerator[FollowedEvents, None]:
    """The same up to the current end of the log."""
    end = (await log.identity()).last
    if end <= after:
        return
    async with aclosing(follow(log, after=after, families=families)) as batches:
        async for followed in batches:
            yield followed
            if followed.position >= end:
                return


async def look_back(log: EventLog, *, until: int, families: Collection[str]) -> tuple[list[Recorded], int]:
    """Events of `families` in the last stretch of the log up to `until`, oldest first; and where that stretch begins.

    The second value is the position to continue from; 0: there is nothing before, also where the log begins later.
    """
    first = position = max(0, until - LOOK_BACK_EVENTS)
    found: list[Recorded] = []
    while position < until:
        batch = await log.read(after=position, limit=until - position)
        if not batch or batch[0].position > position + 1:
            first = 0
        for stored in batch:
            if stored.position <= until and family_of(stored.subject) in families:
                event = decode(stored, strict=False)
                if event is not None:
                    found.append(event)
        position = batch[-1].position if batch else until
    return found, first
