"""Ctrl-C at `hindcast start`: the first asks for an orderly stop, one more ends everything at once. SIGTERM counts alike.

The interpreter handles them, not the event loop: neither a loop that does not come round nor a stop that hangs may keep
a person waiting.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
"""Exit status."""
SAME_S = 1.0
"""One press can arrive several times: from the terminal, and from a program above that passes it on."""
GONE_S = 2.0
"""How long killed processes may take to be gone."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end what runs within as Ctrl-C does, so that it stops what it has started.

    A signal that is ignored already (`nohup`) stays so. What handles SIGINT or SIGTERM by itself goes on doing so.

    Raises:
        SystemExit: with 128 and the signal's number, where a signal ended it.

    """
    asked: list[tuple[int, float]] = []

    def take(number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        again = bool(asked) and now_s - asked[-1][1] <= SAME_S
        asked.append((number, now_s))
        if again:
            return
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL):
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # the event loop, or whoever else has Ctrl-C, takes it

    taken = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL
    ]
    for number in taken:
        signal.signal(number, take)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(128 + asked[0][0] if asked else INTERRUPTED) from None
    except SystemExit as leaving:
        if asked and leaving.code == INTERRUPTED:
            raise SystemExit(128 + asked[0][0]) from None
        raise
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def heed_interrupts(stop: asyncio.Event) -> None:
    """From now on SIGINT and SIGTERM set `stop`; from the second on they end this process and everything below it."""
    loop = asyncio.get_running_loop()
    asked_s: float | None = None

    def take(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_s
        now_s = time.monotonic()
        if asked_s is None:
            asked_s = now_s
            with suppress(RuntimeError):  # the loop is closed: there is nothing left to be stopped
                loop.call_soon_threadsafe(stop.set)
        elif now_s - asked_s > SAME_S:
            end_at_once()

    for number in SIGNALS:
        signal.signal(number, take)


def end_at_once() -> NoReturn:
    """Kill every process below this one, say so, and leave without any cleaning up."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    below = psutil.Process().children(recursive=True)
    for one in below:  # parents come first: nobody is left who would start another
        with suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(below, timeout=GONE_S)
    text = (
        f"stopped at once, {len(below)} processes killed. The log is intact: what was acknowledged stands in it, and the "
        "same command goes on from there.\n"
    )
    with suppress(OSError):  # not through the buffer, in the midst of whose writing this may be
        os.write(sys.stderr.fileno(), text.encode())
    os._exit(INTERRUPTED)
