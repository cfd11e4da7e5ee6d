"""Follows some families of the log from a position on.

`follow` reads some families in order without decoding the others. Roles that fold a small part of the log use it: an actor
for its weights, a judge for the tasks, the curriculum for everything but pages. Every batch carries the position read up
to, also when it contains no event, so that a reader knows how far its view goes. Positions are checked to be contiguous;
hash chains are left to readers of the whole log.

`LogFollower` is a role's memory of some families, which waits until it covers a position. It follows those families from
the end of the log at start; subclasses read earlier events backwards.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing

import msgspec

from hindcast.core.errors import BrokerUnreachable, ForeignLog
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
    events: list[Recorded] = []
    while position < until:
        batch = await log.read(after=position, limit=until - position)
        if not batch or batch[0].position > position + 1:
            first = 0
        for stored in batch:
            if stored.position <= until and family_of(stored.subject) in families:
                event = decode(stored, strict=False)
                if event is not None:
                    events.append(event)
        position = batch[-1].position if batch else until
    return events, first


class LogFollower(ABC):
    """State folded from a stretch of the log that grows at its end."""

    def __init__(self, log: EventLog, families: Collection[str]) -> None:
        self.position = 0
        """Position of the last event read."""
        self._after = 0
        """Position before the first event read."""
        self._log = log
        self._families = families
        self._grown = asyncio.Condition()

    @abstractmethod
    def _take(self, recorded: Recorded) -> None:
        """Apply an event of the families."""

    async def follow(self) -> None:
        """Follow the log from its current end, forever."""
        self._after = (await self._log.identity()).last
        await self._reach(self._after)
        async with aclosing(follow(self._log, after=self._after, families=self._families)) as batches:
            async for followed in batches:
                for recorded in followed.recorded:
                    self._take(recorded)
                await self._reach(followed.position)

    async def _reach(self, position: int) -> None:
        async with self._grown:
            self.position = position
            self._grown.notify_all()

    async def _known_before(
        self, position: int, *, stalled_s: float, enough: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until everything before a position is read, or what is known is enough.

        Raises:
            BrokerUnreachable: no event was read for `stalled_s`, so the state is unknown.
        """
        while self.position < position - 1 and not enough():
            reached = self.position
            try:
                async with asyncio.timeout(stalled_s), self._grown:
                    await self._grown.wait_for(lambda reached=reached: self.position > reached)  # type: ignore[misc]
            except TimeoutError:
                raise BrokerUnreachable(
                    f"the log is known up to position {self.position}, and no event arrived for {stalled_s:g} s "
                    f"(log.append_timeout_s), although the log reaches {position}. Run: hindcast doctor"
                ) from None
