"""Alerts of a run in the terminal of `hindcast start`: runs the watcher of `hindcast alerts` during the system.

It has its own consumer name, so that `hindcast alerts` may watch the same run, and folds from the run's beginning to know
the usual values; older incidents are not shown. Its failures never stop the system: it tries again after `AGAIN_S`, unless
nothing reads its output.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from hindcast.app.alerts.watcher import watch_alerts
from hindcast.app.attach.attachment import AttachmentSession
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import HindcastError

NAME = "start-alerts"
AGAIN_S = 30.0
LEAVE_S = 5.0
"""How long a stop waits for a running check."""


@asynccontextmanager
async def telling_alerts(handle: RunHandle, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Show every alert of the run until the end of the block. `say` is called in a thread.

    Exceptions of the block pass unchanged.
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
        finally:  # also if this wait itself is canceled
            watching.cancel()
            await tasks.__aexit__(None, None, None)  # an error of the block is no error of a group


async def _tell(
    handle: RunHandle, say: Callable[[str], None], session: AttachmentSession, since_ns: int
) -> None:
    loop = asyncio.get_running_loop()

    def told(line: str) -> None:
        try:
            say(line)
        except OSError:  # the output has no reader; the next start shows the alert
            loop.call_soon_threadsafe(session.stop.set)
            raise

    said = ""
    while not session.stop.is_set():
        try:
            await watch_alerts(
                handle,
                session,
                lambda message: told(message.line),
                name=NAME,
                begin="start",
                new_since_ns=since_ns,
            )
        except Exception as error:  # any error: training must not end because alerts failed
            trouble = _words(error)
            if trouble != said and not session.stop.is_set():
                said = trouble
                with suppress(OSError):
                    told(f"alerts cannot be watched, trying again: {trouble}")
        with suppress(TimeoutError):
            await asyncio.wait_for(session.stop.wait(), AGAIN_S)


def _words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_words, error.exceptions))
    return str(error) if isinstance(error, HindcastError) else f"{type(error).__name__}: {error}"
