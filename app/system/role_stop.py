"""How a role ends: when its supervisor stops it; the projector only after the last events of the other roles."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

from hindcast.app.system.processes import others_working

LAST_WORDS_S = 2.8
"""How long the projector outlives a stop; honcho kills 5 s after the first process has ended."""
SETTLE_S = 0.2
"""From the end of the last other role to the projector's own end."""
POLL_S = 0.1


async def outlast_others(home: Path, stop: asyncio.Event, outlasted: asyncio.Event) -> None:
    """Set `outlasted` once the other roles have ended after `stop`, so that the tables show their last events."""
    await stop.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_S):
            while others_working(home / "processes", besides=("bus", "projector", "site", "page")):  # noqa: ASYNC110 - files
                await asyncio.sleep(POLL_S)
            await asyncio.sleep(SETTLE_S)
    outlasted.set()


async def until_stopped(work: Awaitable[object], stop: asyncio.Event) -> None:
    """Run `work` to its end, or cancel it when `stop` is set."""

    async def run() -> None:
        await work

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(run())

        async def cancel() -> None:
            await stop.wait()
            working.cancel()

        stopping = tasks.create_task(cancel())
        working.add_done_callback(lambda _: stopping.cancel())
