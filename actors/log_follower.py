"""A role's memory of some families of the log, which waits until it covers a position.

It follows those families from the end of the log at start; subclasses read earlier events backwards. It waits for the log
to be read up to a position (`stalled_s` without progress).
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
