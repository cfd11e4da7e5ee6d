"""How soon a system works, and works again after kill -9, and what that costs.

Each repeat starts the real command in a home of its own, waits until every process has answered, adds up what they have cost,
kills an actor and then the learner, and stops the system.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from bench.memory import MIB
from bench.memory_run import SystemEnded, started
from hindcast.app.system.processes import list_processes

KILLED = ("actor.1", "learner.1")
LONGEST_S = 240.0
POLL_S = 0.02


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a system."""

    ready_s: float
    """From the command to the answer of the last process."""
    cpu_s: float
    """Processor time of all processes until then."""
    memory_mib: float
    """What they hold then; a page that several share counts once (PSS)."""
    again_s: dict[str, float]
    """Killed worker -> from its kill to the answer of the next."""


def measure_start(home: Path, overrides: Sequence[str], said: Callable[[str], None]) -> Start:
    """Start a system once.

    Raises:
        SystemEnded: it did not come up, or a killed worker did not return within `LONGEST_S`.

    """
    began = time.monotonic()
    with started(home, overrides) as starter:
        ready_s = time.monotonic() - began
        cpu_s, memory_mib = _costs(starter)
        again_s = {name: _kill(home, name) for name in KILLED}
    found = Start(ready_s=ready_s, cpu_s=cpu_s, memory_mib=memory_mib, again_s=again_s)
    said(f"ready after {ready_s:.1f} s and {cpu_s:.1f} s of processor time; again after {again_s}")
    return found


def _costs(starter: "subprocess.Popen[str]") -> tuple[float, float]:
    """Processor time in seconds and memory in MiB of the command and all processes below it, ended children included."""
    cpu_s = memory = 0.0
    command = psutil.Process(starter.pid)
    for process in (command, *command.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            cpu_s += times.user + times.system + times.children_user + times.children_system
            memory += process.memory_full_info().pss
    return cpu_s, memory / MIB


def _kill(home: Path, name: str) -> float:
    """Seconds from a worker's kill to the next one's answer."""
    (before,) = (one for one in list_processes(home / "processes") if one.name == name)
    os.kill(before.pid, signal.SIGKILL)
    began = time.monotonic()
    while time.monotonic() - began < LONGEST_S:
        for one in list_processes(home / "processes"):
            if one.name == name and one.pid != before.pid and one.state == "ready":
                return time.monotonic() - began
        time.sleep(POLL_S)
    raise SystemEnded(f"{name} did not return within {LONGEST_S:.0f} s. See {home / 'honcho.log'}.")
