"""How far the runs are that somebody watches: one look at a time and run, however many watch it."""

import asyncio
import time
from collections import defaultdict

from app.page.runs import OpenRun

LIVE_POLL_S = 0.5
"""How often a run is looked at for those who watch it."""


class Looks:
    """The newest look at each run."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, int]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def position(self, run: OpenRun) -> int:
        """Where the run's read model stands, as of `LIVE_POLL_S` ago at most."""
        name = run.handle.name
        async with self._locks[name]:
            looked, position = self._looks.get(name, (float("-inf"), 0))
            if time.monotonic() - looked >= LIVE_POLL_S:
                position = await asyncio.to_thread(run.model.position)
                self._looks[name] = (time.monotonic(), position)
            return position
