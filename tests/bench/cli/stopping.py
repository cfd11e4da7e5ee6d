"""A benchmark that is stopped takes with it what it has started: whole systems, peers, browsers.

Ctrl-C in a terminal reaches everything below; a signal to the command alone does not, nor does a kill -9. So on SIGINT
and SIGTERM we pass a SIGTERM on and leave in the ordinary way: what runs in an event loop is cancelled, elsewhere an
exception is raised. Folders are removed, threads that wait for a child come back. A system below also looks for us itself
(`STARTER`), for the case that we can do nothing more.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from hindcast.app.system.supervisor import STARTER

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def taking_children_along() -> Iterator[None]:
    """Everything that is started within ends with this process, whatever stops it.

    Raises:
        SystemExit: with 128 and the signal's number, where a signal stopped it.

    """
    before = [(number, signal.getsignal(number)) for number in SIGNALS]
    starter = os.environ.get(STARTER)
    asked: list[int] = []

    def stop(number: int, _frame: object) -> None:
        asked.append(number)
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                child.terminate()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no loop runs in this thread
            raise SystemExit(128 + number) from None
        # An exception raised here would end whichever task happens to run and leave the others in the middle.
        loop.call_soon_threadsafe(_cancel_all, loop)

    for number in SIGNALS:
        signal.signal(number, stop)
    os.environ[STARTER] = str(os.getpid())
    try:
        yield
        if asked:  # the cancelled part ended in peace: what came out is no measurement
            raise SystemExit(128 + asked[0])
    except BaseException:
        if asked:  # whatever it is, it came of what the signal ended
            raise SystemExit(128 + asked[0]) from None
        raise
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        os.environ.pop(STARTER)
        if starter is not None:
            os.environ[STARTER] = starter


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
