"""A benchmark that is stopped leaves no system behind, whichever it is and however it is stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from processes.system import COMMAND, ROOT

UP_S = 120.0
GONE_S = 40.0
pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.browser]
TRAIN = """
import asyncio, sys
from pathlib import Path
from bench.recipes.training_run import train
from bench.cli.stopping import taking_children_along
with taking_children_along():
    home = Path(sys.argv[1])
    asyncio.run(asyncio.to_thread(train, "r", [], recipe="mgrpo", minutes=9, updates=None, home=home))
"""
"""What `bench recipes` comes to for a row that is trained."""


def command_of(benchmark: str, folder: Path) -> list[str]:
    if benchmark == "recipes":
        return [sys.executable, "-c", TRAIN, str(folder / "recipes")]
    return [*COMMAND, "bench", benchmark]


def is_up(folder: Path) -> bool:
    """Whether a learner of a system in the folder runs. Unlike `rglob`, `os.walk` passes over folders that go meanwhile."""
    return any(
        Path(root).name == "processes" and "learner.1.json" in files for root, _, files in os.walk(folder)
    )


@pytest.mark.parametrize(
    ("benchmark", "number"),
    [
        ("async", signal.SIGINT),
        ("memory", signal.SIGTERM),
        ("recipes", signal.SIGTERM),
        ("recipes", signal.SIGKILL),
    ],
    ids=str,
)
def test_a_stopped_benchmark_takes_its_system_along(
    benchmark: str, number: signal.Signals, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        command_of(benchmark, tmp_path),
        cwd=ROOT,
        env={
            **os.environ,
            "HINDCAST_HOME": str(tmp_path / "home"),
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": str(ROOT / "tests"),
        },
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    below: list[psutil.Process] = []
    try:
        until = time.monotonic() + UP_S
        while not is_up(tmp_path):
            assert time.monotonic() < until, "no system came up"
            assert process.poll() is None
            time.sleep(0.1)
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(below) > 8, below
        process.send_signal(number)
        left = psutil.wait_procs(below, timeout=GONE_S)[1]
        assert not [one for one in left if one.status() != psutil.STATUS_ZOMBIE]
        status = process.wait(GONE_S)
    finally:
        for one in (*below, psutil.Process(process.pid)) if process.poll() is None else below:
            if one.is_running():
                one.kill()
        process.wait()
    if number == signal.SIGKILL:
        return
    assert status == 128 + number
    if benchmark != "recipes":
        assert not list(tmp_path.rglob("honcho.log")), "the folder of the measurement is gone with it"
