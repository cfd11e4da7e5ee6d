"""Limits how fast one process asks: concurrent requests, requests per minute, and pauses that the server asks for.

Waits are bounded: a turn comes after at most `endpoint.requests_per_minute`'s interval per earlier waiting request, and
the server's pause (at most `LONGEST_HOLD_S`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hindcast.actors.episodes.time_limit import uncounted

LONGEST_HOLD_S = 60.0
"""Longest pause: a server that asks for more is out of service."""
SECONDS_A_MINUTE = 60.0


class RateLimit:
    """Turns of the requests of one process."""

    def __init__(
        self,
        *,
        at_once: int,
        per_minute: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`per_minute` 0: no limit. `clock` in seconds."""
        self._slots = asyncio.Semaphore(at_once)
        self._interval_s = SECONDS_A_MINUTE / per_minute if per_minute else 0.0
        self._clock = clock
        self._sleep = sleep
        self._next = float("-inf")

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and its time, not counted by time limits, and hold the slot."""
        with uncounted():
            await self._slots.acquire()
        try:
            with uncounted():
                while (now_s := self._clock()) < self._next:
                    await self._sleep(self._next - now_s)
            self._next = now_s + self._interval_s
            yield
        finally:
            self._slots.release()

    def hold(self, seconds: float) -> None:
        """Begin no request for this long."""
        self._next = max(self._next, self._clock() + min(seconds, LONGEST_HOLD_S))
