"""The health check of containers: what it calls in order, and what not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hindcast.app.system.health import problem
from hindcast.app.system.processes import READY, ProcessState, report, write_json


def state(name: str, state: str, *, pid: int = 0) -> ProcessState:
    return ProcessState(name=name, pid=pid or os.getpid(), state=state)


@pytest.fixture
def ended() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_parts_that_answer_are_in_order() -> None:
    states = [state("actor.1", "ready"), state("judge.1", "finished"), state("bus.1", "paused")]
    assert problem(states, opened=True) == ""


def test_what_is_not_in_order_is_named(ended: int) -> None:
    states = [state("actor.1", "crashed"), state("judge.1", "ready", pid=ended), state("bus.1", "ready")]
    assert problem(states, opened=True) == "actor.1 is crashed, judge.1 has ended"


def test_a_home_without_an_open_run_is_not_healthy() -> None:
    assert problem([state("bus.1", "ready")], opened=False)
    assert problem([], opened=True)


@pytest.mark.process
def test_the_command_of_the_image_says_it_by_its_status(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "hindcast.app.system.health"]
    environment = os.environ | {"HINDCAST_HOME": str(tmp_path)}
    assert subprocess.run(command, env=environment, check=False).returncode == 1
    write_json(tmp_path / READY, {})
    report(tmp_path / "processes", name="actor.1", pid=os.getpid(), state="ready")
    assert subprocess.run(command, env=environment, check=False).returncode == 0
