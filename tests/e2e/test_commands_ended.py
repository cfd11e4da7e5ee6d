"""Commands that start a broker for themselves leave none behind, whatever signal ends them and whenever it comes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hindcast.app.system.broker import noted_broker, running_broker
from stories.recorded_home import make_home
from stories.synthetic_run import a_run

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.browser]

ROOT = Path(__file__).parents[2]
FACTS = a_run(1, groups=1)
WAIT_S = 90.0
FOLLOW = ("log", "tail", "-n", "1", "--follow", "--json")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run; no broker is running."""
    home = tmp_path_factory.mktemp("ended") / "home"
    asyncio.run(make_home(home, FACTS))
    return home


class Command:
    """A command as a real process, in a home."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self.noted = noted_broker(home)
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from hindcast.app.cli import main; main()", *arguments],
            cwd=ROOT,
            env={**os.environ, "HINDCAST_HOME": str(home), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, moment: str) -> None:
        if moment == "starting the broker":
            until = time.monotonic() + WAIT_S
            while noted_broker(self.home) == self.noted:
                assert time.monotonic() < until
                time.sleep(0.002)
        elif moment == "reading":
            assert self.process.stdout is not None
            assert json.loads(self.process.stdout.readline())["position"] == len(FACTS)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=WAIT_S)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def commands(home: Path) -> Iterator[list[Command]]:
    """Commands to be ended with the test."""
    started: list[Command] = []
    yield started
    for one in started:
        one.close()


def require_no_broker(home: Path) -> None:
    """A killed command's broker goes soon, another's before the command has ended."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        commands = [process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"])]
        left = [command for command in commands if any(str(home) in part for part in command)]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"left behind: {left}")


@pytest.mark.parametrize("moment", ["loading", "starting the broker", "reading"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=str)
def test_an_ended_command_leaves_no_broker(
    home: Path, commands: list[Command], number: signal.Signals, moment: str
) -> None:
    command = Command(home, *(("audit",) if moment == "starting the broker" else FOLLOW))
    commands.append(command)
    command.wait_for(moment)
    status = command.end(number)
    if moment == "starting the broker":
        assert status == (-number if number == signal.SIGKILL else 128 + number)
    require_no_broker(home)


def test_a_killed_command_leaves_its_broker_to_those_who_use_it(home: Path, commands: list[Command]) -> None:
    for _ in range(2):
        commands.append(Command(home, *FOLLOW))
        commands[-1].wait_for("reading")
    first, second = commands
    first.end(signal.SIGKILL)
    third = Command(home, *FOLLOW)
    commands.append(third)
    third.wait_for("reading")
    assert running_broker(home) == noted_broker(home) == second.noted
    assert second.end(signal.SIGTERM) == 0
    assert third.end(signal.SIGHUP) == 0
    require_no_broker(home)


def test_signals_that_are_ignored_stay_so(home: Path, commands: list[Command]) -> None:
    """`nohup hindcast …` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        command = Command(home, *FOLLOW)
    finally:
        signal.signal(signal.SIGHUP, before)
    commands.append(command)
    command.wait_for("reading")
    command.process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        command.process.wait(1)
    assert command.end(signal.SIGTERM) == 0
