"""A measurement that is stopped in the middle of its event loop ends in silence, its sites with it."""

import signal
import subprocess
import sys

import pytest

from processes.system import ROOT

MEASURING = """
import asyncio
from bench.cli.stopping import taking_children_along
from hindcast.app.system.sites import sites_running
from hindcast.core.settings.schema import Settings

async def measure():
    async with sites_running(Settings()), asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.Event().wait())
        print("up", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            print("left", flush=True)

with taking_children_along():
    asyncio.run(measure())
"""
IN_PEACE = """
import asyncio, os, signal
from contextlib import suppress
from bench.cli.stopping import taking_children_along

async def measure():
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()

with taking_children_along():
    asyncio.run(measure())
print("measured")
"""
ENDS_S = 120


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_stopped_while_it_serves_a_site(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MEASURING],
        cwd=ROOT / "tests",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        said, complained = process.communicate(timeout=ENDS_S)
    assert said == "left\n"
    assert complained == ""
    assert process.returncode == 128 + number


def test_what_is_stopped_is_no_measurement_though_nothing_failed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IN_PEACE],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("", "")
    assert ended.returncode == 128 + signal.SIGTERM
