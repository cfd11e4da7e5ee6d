"""Positions of the runs that visitors watch, read at most once in `LIVE_POLL_S` for each run."""

import asyncio
import time
from collections import defaultdict

from hindcast.app.page.runs import OpenRun

LIVE_POLL_S = 0.5
"""Seconds between two reads of a run's position."""


class LivePositions:
    """The newest position of each run."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def shown(self, run: OpenRun) -> str:
        """The mark of the run's current page, at most `LIVE_POLL_S` old."""
        name = run.handle.name
        async with self._locks[name]:
            looked, shown = self._looks.get(name, (float("-inf"), ""))
            if time.monotonic() - looked >= LIVE_POLL_S:
                shown = await asyncio.to_thread(
                    lambda: mark(run.model.position(), going_on=run.handle.is_running())
                )
                self._looks[name] = (time.monotonic(), shown)
            return shown


def mark(position: int, *, going_on: bool) -> str:
    """Identifies a page's content: the read model's position, and whether the run is running. Another mark means a new page."""
    return f"{position}" if going_on else f"{position} at rest"
