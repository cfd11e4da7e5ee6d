"""Ctrl-C handling: the first Ctrl-C of `hindcast start` stops it in order, the second ends everything at once.

SIGTERM counts like Ctrl-C. The interpreter handles the signals, not the event loop, so that neither a blocked loop nor a
hanging stop can delay them.
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
"""Exit status after the second signal."""
SAME_S = 1.0
"""Signals within this time count as one: a press can arrive from the terminal and from a parent that passes it on."""
GONE_S = 2.0
"""How long to wait for killed processes to end."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """End the block on SIGTERM and SIGHUP as on Ctrl-C, so that it can stop what it has started.

    A signal that is ignored already (`nohup`) stays ignored. Code that handles SIGINT or SIGTERM itself keeps its handler.

    Raises:
            SystemExit: with 128 plus the signal's number, if a signal ended the block.

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
        signal.raise_signal(signal.SIGINT)  # the event loop or another handler of Ctrl-C takes it

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
    """Set `stop` at the first SIGINT or SIGTERM; at the second, end this process and all its descendants."""
    loop = asyncio.get_running_loop()
    asked_s: float | None = None

    def take(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_s
        now_s = time.monotonic()
        if asked_s is None:
            asked_s = now_s
            with suppress(RuntimeError):  # the loop is closed and nothing runs
                loop.call_soon_threadsafe(stop.set)
        elif now_s - asked_s > SAME_S:
            end_at_once()

    for number in SIGNALS:
        signal.signal(number, take)


def end_at_once() -> NoReturn:
    """Kill every process below this one, report it, and exit without cleaning up."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    below = psutil.Process().children(recursive=True)
    for one in below:  # parents first, so that none starts another child
        with suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(below, timeout=GONE_S)
    text = (
        f"stopped at once, {len(below)} processes killed. The log is intact: it holds every acknowledged event, and the same "
        "command resumes the run.\n"
    )
    with suppress(OSError):  # unbuffered: the signal may have interrupted a buffered write
        os.write(sys.stderr.fileno(), text.encode())
    os._exit(INTERRUPTED)
