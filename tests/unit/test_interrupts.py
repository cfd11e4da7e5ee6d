"""Ctrl-C once asks for a stop, once more ends everything, whatever hangs."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hindcast.app.system.interrupts import INTERRUPTED, SAME_S

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
BELOW = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deeper = "import time; time.sleep(90)"
subprocess.Popen([sys.executable, "-c", deeper], start_new_session=True, stdout=subprocess.DEVNULL)
print("up", flush=True)
time.sleep(90)
"""
STARTER = """
import asyncio, subprocess, sys, time
from hindcast.app.system.interrupts import heed_interrupts

async def main(hangs, below):
    stop = asyncio.Event()
    heed_interrupts(stop)
    command = [sys.executable, "-c", below]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
    process.stdout.readline()
    print("up", flush=True)
    if hangs == "loop":
        time.sleep(90)
    await stop.wait()
    print("asked", flush=True)
    await asyncio.to_thread(process.wait)

asyncio.run(main(*sys.argv[1:]))
"""


class Started:
    """A program that stands for `hindcast start`, with processes below it that heed no SIGTERM."""

    def __init__(self, hangs: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTER, hangs, BELOW],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == "up"
        self.below = psutil.Process(self.process.pid).children(recursive=True)

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.kill()
        for one in self.below:
            if one.is_running():
                one.kill()
        self.process.communicate()


@pytest.fixture(params=["loop", "stop"])
def started(request: pytest.FixtureRequest) -> Iterator[Started]:
    """What hangs: the event loop, or the stop that it began."""
    started = Started(request.param)
    yield started
    started.close()


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_the_second_one_kills_everything_and_says_so_in_a_line(started: Started, second: int) -> None:
    assert len(started.below) == 2
    started.process.send_signal(signal.SIGINT)
    time.sleep(SAME_S)
    assert started.process.poll() is None
    until = time.monotonic() + 20
    while started.process.poll() is None and time.monotonic() < until:
        # a busy machine heeds the first one late
        started.process.send_signal(second)
        time.sleep(0.2)
    _, errors = started.process.communicate(timeout=60)
    assert started.process.returncode == INTERRUPTED
    assert errors.startswith("stopped at once, 2 processes killed. The log is intact")
    assert errors.count("\n") == 1
    assert not [one for one in started.below if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("started", ["stop"], indirect=True)
def test_one_that_arrives_twice_asks_for_an_orderly_stop(started: Started) -> None:
    """`timeout` and benchmarks pass on to their child what the terminal has given it already."""
    started.process.send_signal(signal.SIGINT)
    started.process.send_signal(signal.SIGTERM)
    assert started.hear() == "asked"
    with pytest.raises(subprocess.TimeoutExpired):
        started.process.wait(0.3)
