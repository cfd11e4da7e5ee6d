"""A benchmark that is stopped takes with it what it has started: whole systems, peers, browsers.

Ctrl-C in a terminal reaches everything below; a signal to the command alone does not, nor does a kill -9. So on SIGINT
and SIGTERM we pass a SIGTERM on and leave in the ordinary way, by an exception: folders are removed, threads that wait
for a child come back. A system below also looks for us itself (`STARTER`), for the case that we can do nothing more.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import psutil

from app.supervisor import STARTER

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def taking_children_along() -> Iterator[None]:
    """Everything that is started within ends with this process, whatever stops it."""
    before = [(number, signal.getsignal(number)) for number in SIGNALS]
    starter = os.environ.get(STARTER)
    for number in SIGNALS:
        signal.signal(number, _stop)
    os.environ[STARTER] = str(os.getpid())
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        os.environ.pop(STARTER)
        if starter is not None:
            os.environ[STARTER] = starter


def _stop(number: int, _frame: object) -> NoReturn:
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            child.terminate()
    raise SystemExit(128 + number)
