"""Other people's blocking code: in one thread, in order, and never waited for at the end."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from hindcast.actors.daemon_thread import DaemonThread

HANGING = """
import asyncio, time
from hindcast.actors.daemon_thread import DaemonThread

async def main():
    try:
        async with asyncio.timeout(0.2):
            await DaemonThread("hangs").call(lambda: time.sleep(600))
    except TimeoutError:
        print("gave up")

asyncio.run(main())
"""


async def test_calls_run_in_one_thread_in_their_order() -> None:
    thread, seen = DaemonThread("one"), list[tuple[int, int]]()

    def note(number: int) -> int:
        seen.append((number, threading.get_ident()))
        return number

    assert await asyncio.gather(*(thread.call(lambda n=n: note(n)) for n in range(5))) == list(range(5))
    thread.stop()
    assert [number for number, _ in seen] == list(range(5))
    assert len({ident for _, ident in seen} | {threading.get_ident()}) == 2


async def test_what_a_call_raises_is_raised_and_the_next_one_runs() -> None:
    thread = DaemonThread("raises")
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await thread.call(lambda: next(iter(())))
    assert await thread.call(lambda: 1) == 1
    thread.stop()


async def test_an_abandoned_call_does_not_disturb_the_next_one() -> None:
    thread = DaemonThread("abandoned")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await thread.call(lambda: time.sleep(0.3))
    assert await thread.call(lambda: "next") == "next"
    thread.stop()


def test_a_process_ends_while_a_call_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "gave up\n"
