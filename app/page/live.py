"""How far the runs are that somebody watches: one look at a time and run, however many watch it."""

import asyncio
import time
from collections import defaultdict

from hindcast.app.page.runs import OpenRun
from hindcast.app.system.system_state import is_running

LIVE_POLL_S = 0.5
"""How often a run is looked at for those who watch it."""


class LivePositions:
    """The newest look at each run."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def shown(self, run: OpenRun) -> str:
        """What pages that show the newest of it are compared by (`mark`), as of `LIVE_POLL_S` ago at most."""
        name = run.handle.name
        async with self._locks[name]:
            looked, shown = self._looks.get(name, (float("-inf"), ""))
            if time.monotonic() - looked >= LIVE_POLL_S:
                shown = await asyncio.to_thread(
                    lambda: mark(run.model.position(), going_on=is_running(run.handle))
                )
                self._looks[name] = (time.monotonic(), shown)
            return shown


def mark(position: int, *, going_on: bool) -> str:
    """Names what a page shows: where the read model stands, and whether the run goes on. Another mark, another page."""
    return f"{position}" if going_on else f"{position} at rest"
