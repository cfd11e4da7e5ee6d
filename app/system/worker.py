"""Runs one role: `python -m hindcast.app.system.worker ROLE NAME`, started by its supervisor.

Crash-only: the role folds its state from the log at every start. SIGTERM sets `stop`; the role records what it must and
ends within `STOP_S`. Exit status 0: the work is done; 2: no restart can help; 3: a signal stopped it; else it crashed.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import structlog
import uvloop

from hindcast.app.revision import is_code_newer_than
from hindcast.app.system.home import home_folder, restrict_new_files
from hindcast.app.system.logs import configure_logging, current_run, style_of, tell
from hindcast.app.system.processes import CRASHED, report, report_failure
from hindcast.app.system.supervisor import HOPELESS, RESTARTS, STOPPED
from hindcast.core.errors import (
    BrokerDenied,
    BrowserUnavailable,
    CorruptEvent,
    ForeignLog,
    HindcastError,
    ModelFileError,
    ReplayDiverged,
    SettingsError,
    UnknownVersion,
    error_and_place,
)
from hindcast.core.fast_import import loading
from hindcast.core.text.printable import one_line

BEGAN = time.time()
"""When this process read its code, in unix seconds."""
STOP_S = 3.5
"""From SIGTERM to the moment the role is cancelled; its supervisor kills after 4 s."""
BEYOND_RESTART = (
    BrokerDenied,
    CorruptEvent,
    ForeignLog,
    ModelFileError,
    ReplayDiverged,
    SettingsError,
    UnknownVersion,
)
"""Errors that return at every start until a person acts: the whole system stops and reports them."""

FINITE = ("prepare", "learner", "curriculum")
"""Roles whose work can be complete; the others work until they are stopped."""

Ready = Callable[[str], None]

logger = structlog.get_logger(__name__)


class _Unawaited(ThreadPoolExecutor):
    """Threads for blocking calls that the exit does not wait for: a database or a disk may block one for half a minute."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Start no more calls; running ones end with the process (`leave`)."""
        super().shutdown(wait=False, cancel_futures=True)


class EndedByItself(HindcastError):
    """A role returned without being stopped; it is started again."""


async def work(role: str, name: str, stop: asyncio.Event) -> None:
    """Run one role until it is done or a signal sets `stop`.

    Raises:
        EndedByItself: the role returned although it has no goal to reach.

    """
    with loading():
        from hindcast.app.bootstrap import ROLES

    loop = asyncio.get_running_loop()
    loop.set_default_executor(_Unawaited(thread_name_prefix=name))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    at_work = asyncio.Event()

    def ready(detail: str) -> None:
        at_work.set()
        _report(name, "ready", detail)

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(ROLES[role](name, stop, ready), name=name)
        stopping = tasks.create_task(_cancel_late(stop, working, at_work))
        working.add_done_callback(lambda _: stopping.cancel())
    if role not in FINITE and not stop.is_set():
        raise EndedByItself(f"{name} returned though nobody stopped it")


async def _cancel_late(stop: asyncio.Event, working: "asyncio.Task[None]", at_work: asyncio.Event) -> None:
    await stop.wait()
    if at_work.is_set():
        await asyncio.sleep(STOP_S)
    working.cancel()


def explain(error: BaseException, name: str, *, once: bool = False) -> int:
    """Report an error to people; returns the exit status. `once`: this process is not restarted, and ends the system."""
    if isinstance(error, BaseExceptionGroup):
        statuses = [explain(inner, name, once=once) for inner in error.exceptions]
        return max(statuses, default=1)
    if isinstance(error, HindcastError):
        kind = type(error).__name__
        style = style_of(home_folder())
        if isinstance(error, UnknownVersion) and is_code_newer_than(BEGAN):
            tell(style, name, f"newer code is installed, starting again with it: {error}", error_type=kind)
            return 1
        tell(style, name, str(error) if style.is_json else f"{kind}: {error}", error_type=kind)
        # a browser that worked before may work again; one that is missing at the very first start will not
        missing = isinstance(error, BrowserUnavailable) and os.environ.get(RESTARTS, "0") == "0"
        if once or missing or isinstance(error, BEYOND_RESTART):
            report_failure(home_folder(), name=name, message=str(error))
            return HOPELESS
        _report(name, CRASHED, one_line(f"{kind}: {error}"))
        return 1
    logger.error("crashed", exc_info=error)
    _report(name, CRASHED, f"{error_and_place(error)}; the traceback is in honcho.log")
    return 1


def _report(name: str, state: str, detail: str) -> None:
    """Record this worker's state for people, and for its supervisor."""
    folder, restarts = home_folder() / "processes", int(os.environ.get(RESTARTS, "0"))
    report(folder, name=name, pid=os.getpid(), state=state, restarts=restarts, detail=detail)


def leave(status: int) -> NoReturn:
    """End the process now, without waiting for computations in threads. All that must last is in the log already."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> int:
    """Run the role and name on the command line; returns the exit status."""
    role, name = sys.argv[1:3]
    home = home_folder()
    restrict_new_files(home)
    configure_logging(style_of(home), process=name, role=role, run=current_run(home))
    stop = asyncio.Event()
    of_the_bus = role == "prepare"  # a child of the bus, which gets the same signals and decides itself
    told = 0 if of_the_bus else STOPPED
    try:
        uvloop.run(work(role, name, stop))
    except BaseException as error:  # the process boundary: the supervisor gets a status for any error
        if isinstance(error, asyncio.CancelledError) and stop.is_set():
            return told
        return explain(error, name, once=of_the_bus)
    return told if stop.is_set() else 0


if __name__ == "__main__":
    leave(main())
