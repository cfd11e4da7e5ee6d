"""A whole system for tests: the real command, under the real honcho, in a home of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hindcast.app.system.processes import list_processes, read_json

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from hindcast.app.cli import main; main()"]
START_S = 240.0
FAMILIES = "miniwob/click-tab-2,miniwob/click-widget,miniwob/click-collapsible-2,miniwob/navigate-tree"
SMALL = {
    "curriculum.families": json.dumps(FAMILIES.split(",")),
    "curriculum.task_pool": "6",
    "curriculum.group_size": "4",
    "curriculum.max_running": "16",
    "curriculum.lease_s": "60",
    "actors.episode_timeout_s": "40",
    "actors.temperature": "1.4",
    "learner.minibatches": "2",
    "learner.epochs": "1",
}
"""Short episodes, and enough chance that the members of a group differ; for every algorithm."""
SMALL_GROUPS = SMALL | {"learner.options.group_batch": "2"}
"""The same for algorithms that compare the members of a group."""


class Home:
    """A HINDCAST_HOME and the commands run in it."""

    def __init__(self, folder: Path, *, cwd: Path = ROOT) -> None:
        """`cwd`: the folder that commands are run in."""
        self.folder = folder
        self.cwd = cwd
        self.environment = {**os.environ, "HINDCAST_HOME": str(folder), "OMP_NUM_THREADS": "1"}

    def run(self, *arguments: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """One command to its end."""
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def json(self, *arguments: str, timeout_s: float = 120.0, status: int = 0) -> Any:
        """The last line a command prints, as JSON; its exit status must be `status`."""
        done = self.run(*arguments, "--json", timeout_s=timeout_s)
        assert done.returncode == status, (
            f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.words()}"
        )
        return json.loads(done.stdout.splitlines()[-1])

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """`hindcast start` in the background; returns when every part has answered."""
        process = subprocess.Popen(
            [*COMMAND, "start", "--json", *arguments],
            cwd=self.cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.communicate(timeout=40)
            raise AssertionError(f"nothing came up:\n{self.words()}")
        assert json.loads(line)["ready"]
        return process

    def stop(self, process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> int:
        """Signal `hindcast start` and wait for its end."""
        process.send_signal(number)
        process.communicate(timeout=40)
        return process.returncode

    def words(self) -> str:
        """The end of what the processes said."""
        output = self.folder / "honcho.log"
        return (
            "\n".join(output.read_text(errors="replace").splitlines()[-40:])
            if output.exists()
            else "no output"
        )

    def pid(self, name: str) -> int:
        """The worker's process id."""
        content = read_json(self.folder / "processes" / f"{name}.json")
        assert content is not None, name
        return int(content["pid"])

    def restarts(self, name: str) -> int:
        """How often a worker was started again."""
        return {entry.name: entry.restarts for entry in list_processes(self.folder / "processes")}[name]

    def kill(self, *names: str) -> None:
        """Signal 9 to these workers at once; returns when each was started again."""
        before = {name: self.restarts(name) for name in names}
        for name in names:
            os.kill(self.pid(name), signal.SIGKILL)
        self.wait_for(
            "others in their place",
            lambda: all(self.restarts(name) > count for name, count in before.items()),
            timeout_s=600,
        )

    def is_ready(self, name: str) -> bool:
        """Whether a process says that it is at work, and lives."""
        entries = {entry.name: entry for entry in list_processes(self.folder / "processes")}
        return name in entries and entries[name].state == "ready" and entries[name].alive

    def wait_for(self, what: str, condition: Any, *, timeout_s: float = START_S) -> None:
        """Poll until the condition holds."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if condition():
                return
            time.sleep(0.3)
        raise AssertionError(f"{what} did not happen within {timeout_s} s:\n{self.words()}")


def settings(
    changes: Mapping[str, str] | None = None, *, base: Mapping[str, str] = SMALL_GROUPS
) -> list[str]:
    """`--set` arguments of a small run."""
    return [
        part for key, value in {**base, **(changes or {})}.items() for part in ("--set", f"{key}={value}")
    ]
