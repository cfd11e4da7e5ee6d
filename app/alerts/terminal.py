"""The alerts of a run in the terminal that started it: the watcher of `hindcast alerts`, beside the system.

It keeps its place under a name of its own, so that `hindcast alerts` may watch the same run, and begins with the run,
so that it knows what is usual for it; what was past when it first began is told to nobody. Whatever befalls it, the
system goes on: it is tried again after `AGAIN_S`, unless there is nobody left to tell it to.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from hindcast.app.alerts.rules import Thresholds
from hindcast.app.alerts.watcher import watch_alerts
from hindcast.app.attach.attachment import AttachmentSession
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import HindcastError

NAME = "start-alerts"
AGAIN_S = 30.0
LEAVE_S = 5.0
"""How long a stop waits for a look that is under way."""


@asynccontextmanager
async def telling_alerts(handle: RunHandle, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Say every alert of the run until the end of the block. `say` is called in a thread.

    What the block raises comes through as it is, and nothing of ours is added to it.
    """
    session = AttachmentSession()
    tasks = asyncio.TaskGroup()
    await tasks.__aenter__()
    watching = tasks.create_task(_tell(handle, say, session, time.time_ns()))
    try:
        yield
    finally:
        session.stop.set()
        try:
            await asyncio.wait((watching,), timeout=LEAVE_S)
        finally:  # also where this wait itself is cancelled
            watching.cancel()
            await tasks.__aexit__(None, None, None)  # an error of the block is no error of a group


async def _tell(
    handle: RunHandle, say: Callable[[str], None], session: AttachmentSession, since_ns: int
) -> None:
    loop = asyncio.get_running_loop()

    def told(line: str) -> None:
        try:
            say(line)
        except OSError:  # whoever read has gone, and hears of it at the next start
            loop.call_soon_threadsafe(session.stop.set)
            raise

    said = ""
    while not session.stop.is_set():
        try:
            await watch_alerts(
                handle,
                Thresholds(),
                session,
                lambda message: told(message.line),
                name=NAME,
                begin="start",
                new_since_ns=since_ns,
            )
        except Exception as error:  # of ours or not: training does not end because nobody watches it
            trouble = _words(error)
            if trouble != said and not session.stop.is_set():
                said = trouble
                with suppress(OSError):
                    told(f"alerts cannot be watched, trying further: {trouble}")
        with suppress(TimeoutError):
            await asyncio.wait_for(session.stop.wait(), AGAIN_S)


def _words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_words, error.exceptions))
    return str(error) if isinstance(error, HindcastError) else f"{type(error).__name__}: {error}"
