"""What comes next of phases, asked beside everything else that the curriculum minds.

A model behind an endpoint may take minutes to answer, in batches a day. Leases run out meanwhile, episodes are cancelled, and
a run is paused, drained or stopped.
"""

import asyncio
from types import TracebackType
from typing import Self

from hindcast.actors.curriculum.evolution import Evolver, Told
from hindcast.actors.curriculum.state import CurriculumState


class PendingDecision:
    """One question at a time to an evolver. As a context: a question that nobody waits for any more is dropped at its end."""

    def __init__(self) -> None:
        self._asked: asyncio.Task[list[Told]] | None = None
        self._last = 0

    async def come(
        self, evolver: Evolver, state: CurriculumState, *, within_s: float
    ) -> tuple[list[Told], int] | None:
        """The facts, and the last of their family that they rest on; None while they are still asked for.

        Asks where nothing is being asked; a question stays with the evolver that it was put to.
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
        """Nothing is asked yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is still asked is dropped. The log holds nothing of it, so that whoever is next asks it again."""
        if self._asked is not None:
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)
