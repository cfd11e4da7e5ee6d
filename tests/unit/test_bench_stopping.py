"""A measurement that is stopped in the middle of its event loop ends in silence, its sites with it."""

import signal
import subprocess
import sys

import pytest
from system import ROOT

MEASURING = """
import asyncio
from app.cli.bench.stopping import taking_children_along
from app.sites import sites_running
from core.settings import Settings

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
ENDS_S = 120


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_stopped_while_it_serves_a_site(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MEASURING], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        said, complained = process.communicate(timeout=ENDS_S)
    assert said == "left\n"
    assert complained == ""
    assert process.returncode == 128 + number
