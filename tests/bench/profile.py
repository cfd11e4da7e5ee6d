"""Where the processor time of a running system goes: process by process, the browser's by kind of process.

Starts the real command in a home of its own, waits until it has settled, and adds up what every process below it takes until
the time is over. A process that ends between two looks loses what it took since the last one.
"""

import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from bench.command import hindcast
from bench.memory_run import SystemEnded, started
from hindcast.core.errors import HindcastError

SETTLED_S = 30.0
"""From the answer of the last process to the first look: models are loaded and demonstrations shown meanwhile."""
EVERY_S = 1.0
SAMPLES_PER_S = 50
"""Stacks that py-spy takes of each worker."""
FLAMES_AHEAD_S = 5.0
"""How much earlier than the measurement py-spy ends, so that its workers are still there."""


WORKER = re.compile(r"\w+\.\d+")
"""The name of a worker, such as `actor.1`."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What processes of one kind took."""

    process: str
    """`learner.1`, `broker`, `chromium renderer`; `supervisors` are all of them."""
    cpu_s: float
    """Processor time in seconds, of user and system."""
    of_a_core: float
    """The same as a share of the time measured."""


class _Taken(NamedTuple):
    process: str
    cpu_s: float


def measure_shares(
    home: Path,
    *,
    minutes: float,
    overrides: Sequence[str],
    paused: bool,
    flames: Path | None,
    say: Callable[[str], None],
) -> list[Share]:
    """Run a system for so long and return the shares, the largest first.

    `paused`: of a run that is paused, so of waiting alone. `flames`: folder for a flame graph of each worker, by py-spy.

    Raises:
        SystemEnded: it did not come up, or ended before its time.
        HindcastError: py-spy is needed and not installed.

    """
    spy = _find_spy() if flames else None
    totals: defaultdict[str, float] = defaultdict(float)
    with started(home, overrides, light=False) as starter, ExitStack() as stack:
        if paused:
            pause = hindcast("ctl", "pause", "--reason", "measured while it waits")
            subprocess.run(
                pause, check=True, env={**os.environ, "HINDCAST_HOME": str(home)}, capture_output=True
            )
        say(f"every process is ready; measuring for {minutes:g} minutes from {SETTLED_S:.0f} s on")
        time.sleep(SETTLED_S)
        before = _taken(starter.pid)
        if spy and flames:
            stack.enter_context(_flame_graphs(spy, flames, before, seconds=minutes * 60 - FLAMES_AHEAD_S))
        began = time.monotonic()
        while (passed := time.monotonic() - began) < minutes * 60:
            if starter.poll() is not None:
                raise SystemEnded(f"the system ended after {passed:.0f} s. See {home / 'honcho.log'}.")
            time.sleep(EVERY_S)
            now = _taken(starter.pid)
            for pid, (process, cpu_s) in now.items():
                totals[process] += cpu_s - (before[pid].cpu_s if pid in before else 0.0)
            before |= now
        wall_s = time.monotonic() - began
    shares = [Share(process=name, cpu_s=cpu_s, of_a_core=cpu_s / wall_s) for name, cpu_s in totals.items()]
    return sorted(shares, key=lambda one: -one.cpu_s)


def _taken(starter: int) -> dict[int, _Taken]:
    """What the command and each process below it have taken so far."""
    found: dict[int, _Taken] = {}
    command = psutil.Process(starter)
    for process in (command, *command.children(recursive=True)):
        try:
            times = process.cpu_times()
            name = "start" if process.pid == starter else kind_of(process.cmdline())
        except psutil.Error:
            continue
        found[process.pid] = _Taken(name, times.user + times.system)
    return found


def kind_of(command: Sequence[str]) -> str:
    """What a process of the system is, from its command line."""
    words = " ".join(command)
    first = command[0].rsplit("/", 1)[-1] if command else ""
    if words.startswith("--hindcast-browser"):
        return "Playwright's driver"
    if "chrom" in first:
        kinds = [word.removeprefix("--type=") for word in command if word.startswith("--type=")]
        return f"chromium {kinds[0] if kinds else 'browser'}"
    if words.startswith("hindcast "):  # a worker, or a server that forks workers, by its title
        return words.removeprefix("hindcast ").strip()
    if first == "nats-server":
        return "broker"
    if "hindcast.app.system" in command:
        return "supervisors"
    return "honcho" if "honcho" in command else first or "ended"


def _find_spy() -> str:
    found = shutil.which("py-spy")
    if found is None:
        raise HindcastError("--flames needs py-spy, which is not on the path: pip install py-spy")
    return found


@contextmanager
def _flame_graphs(spy: str, folder: Path, processes: dict[int, _Taken], *, seconds: float) -> Iterator[None]:
    """Let py-spy draw every worker within the block, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    drawing = [
        subprocess.Popen(
            (
                spy, "record", "--nonblocking", "--threads", "--rate", str(SAMPLES_PER_S), "--duration",
                str(max(1, round(seconds))), "--output", str(folder / f"{taken.process}.svg"), "--pid", str(pid),
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for pid, taken in processes.items()
        if WORKER.fullmatch(taken.process)
    ]  # fmt: skip
    try:
        yield
    finally:
        for process in drawing:
            process.wait()
