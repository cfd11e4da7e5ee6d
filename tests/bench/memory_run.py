"""A system that runs for a while so that its memory can be watched: the real command in a home of its own.

Waits until every part answers (`hindcast start` bounds that), then for the time asked for; produces a sample every
`EVERY_S`.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.command import hindcast
from bench.memory import Sample, take_sample
from hindcast.core.errors import HindcastError

EVERY_S = 5.0
STOP_S = 60.0
FAMILIES = (
    "miniwob/click-link",
    "miniwob/click-tab-2",
    "miniwob/click-widget",
    "miniwob/click-collapsible-2",
)
"""Short episodes, won and lost, so that every process has plenty to do: memory that grows, grows with what is done."""
LIGHT = {
    "curriculum.families": json.dumps(FAMILIES),
    "curriculum.task_pool": "16",
    "curriculum.group_size": "4",
    "curriculum.max_running": "8",
    "actors.contexts": "2",
    "actors.temperature": "1.4",
    "learner.options.group_batch": "2",
}


class SystemEnded(HindcastError):
    """The system under watch ended by itself."""


def watch_memory(
    home: Path, *, minutes: float, overrides: Sequence[str], said: Callable[[str], None]
) -> list[Sample]:
    """Run a system for so long and return the samples.

    Raises:
        SystemEnded: it did not come up, or ended before its time.

    """
    samples: list[Sample] = []
    with started(home, overrides) as starter:
        others = {"start": starter.pid} | _honcho_and_supervisors(starter.pid)
        began = time.monotonic()
        due = 0.0
        while (now := time.monotonic() - began) < minutes * 60:
            if starter.poll() is not None:
                raise SystemEnded(f"the system ended after {now:.0f} s. See {home / 'honcho.log'}.")
            if now >= due:
                samples.append(take_sample(home / "processes", at_s=now, others=others))
                due = now + EVERY_S
                if len(samples) % 60 == 1:
                    total = sum(size for name, size in samples[-1].sizes_mib.items() if " (" not in name)
                    said(f"{now / 60:.0f} of {minutes:g} minutes, {total:.0f} MiB resident")
            time.sleep(0.1)
    return samples


@contextmanager
def started(home: Path, overrides: Sequence[str], *, light: bool = True) -> Iterator["subprocess.Popen[str]"]:
    """A system within the block, which is entered when every part has answered; `light`: with the settings `LIGHT`.

    Raises:
        SystemEnded: it did not come up.

    """
    settings = [*(f"{key}={value}" for key, value in LIGHT.items()), *overrides] if light else overrides
    chosen = [part for one in settings for part in ("--set", one)]
    starter = subprocess.Popen(
        hindcast("start", "--json", "--run", "measured", *chosen),
        env={**os.environ, "HINDCAST_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert starter.stdout is not None
        if not starter.stdout.readline():
            raise SystemEnded(f"the system did not come up. See {home / 'honcho.log'}.")
        yield starter
    finally:
        starter.terminate()
        try:
            starter.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            starter.kill()
            starter.communicate()


def _honcho_and_supervisors(starter: int) -> dict[str, int]:
    """Processes that only keep others alive, by what they keep."""
    found: dict[str, int] = {}
    for child in psutil.Process(starter).children(recursive=True):
        command = child.cmdline()
        if "honcho" in command:
            found["honcho"] = child.pid
        elif "hindcast.app.system" in command:
            found[f"supervisor of {command[-1]}"] = child.pid
        elif " ".join(command).startswith("hindcast fork server"):
            found[" ".join(command)] = child.pid
    return found
