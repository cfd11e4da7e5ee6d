"""What a role remembers of the log by following a few families of it, and waiting until it goes far enough.

Consumes those families from where the log ends at the start; what stands before is looked for backwards by who needs it.
Waits for the log to be read up to a position (`stalled_s` without progress).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import aclosing

from hindcast.actors.family_follower import follow
from hindcast.core.errors import BrokerUnreachable
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog


class LogFollower(ABC):
    """What stands in a stretch of the log that grows at its end."""

    def __init__(self, log: EventLog, families: Collection[str]) -> None:
        self.position = 0
        """The log is known up to here …"""
        self._after = 0
        """… from after here on."""
        self._log = log
        self._families = families
        self._grown = asyncio.Condition()

    @abstractmethod
    def _take(self, recorded: Recorded) -> None:
        """Remember an event of the families, or let go of what it ends."""

    async def follow(self) -> None:
        """Follow the log from its end now, for ever."""
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
        """Wait until everything before a position is known, or what is known is enough.

        Raises:
            BrokerUnreachable: the log was read no further for `stalled_s`, so nobody can tell.

        """
        while self.position < position - 1 and not enough():
            reached = self.position
            try:
                async with asyncio.timeout(stalled_s), self._grown:
                    await self._grown.wait_for(lambda reached=reached: self.position > reached)  # type: ignore[misc]
            except TimeoutError:
                raise BrokerUnreachable(
                    f"the log is known up to position {self.position}, and nothing came for {stalled_s:g} s "
                    f"(log.append_timeout_s), though it goes on to {position}. Run: hindcast doctor"
                ) from None
