"""A phase decision that is computed while the curriculum does its other work.

A model behind an endpoint may take minutes to answer, and in batches a day. Meanwhile leases expire, episodes are
cancelled, and a run is paused, drained or stopped.
"""

import asyncio
from types import TracebackType
from typing import Self

from hindcast.actors.curriculum.evolution import Evolver, Told
from hindcast.actors.curriculum.state import CurriculumState


class PendingDecision:
    """One pending call to an evolver at a time. Leaving the context cancels it."""

    def __init__(self) -> None:
        self._asked: asyncio.Task[list[Told]] | None = None
        self._last = 0

    async def come(
        self, evolver: Evolver, state: CurriculumState, *, within_s: float
    ) -> tuple[list[Told], int] | None:
        """Wait up to `within_s`; return the events and the last position of the family they rest on, or None if pending.

        Starts a call if none is pending. A pending call keeps the evolver that it was started with.
        """
        if self._asked is None:
            self._last = state.last_curriculum
            self._asked = asyncio.create_task(evolver.next_facts(state))
        done, _ = await asyncio.wait({self._asked}, timeout=within_s)
        if not done:
            return None
        facts = self._asked.result()
        self._asked = None
        return facts, self._last

    async def __aenter__(self) -> Self:
        """Enter the context; no call is pending."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the pending call. The log holds nothing of it, so the next process starts it again."""
        if self._asked is not None:
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)
