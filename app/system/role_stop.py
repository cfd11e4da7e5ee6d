"""How a role's work ends: at the word of its supervisor, and the projector's only after the others had their last."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

from hindcast.app.system.processes import others_working

LAST_WORDS_S = 2.8
"""How long the projector outlasts a stop; honcho kills 5 s after the first process has left."""
SETTLE_S = 0.2
"""From the last word of the others to the projector's own end."""
POLL_S = 0.1


async def outlast_others(home: Path, stop: asyncio.Event, outlasted: asyncio.Event) -> None:
    """Set `outlasted` when the others have said what they had to say after `stop`, so that the tables show it."""
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
