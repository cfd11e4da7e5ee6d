"""`python -m hindcast.app.system.health`: whether every process of this home has answered; for health checks of containers.

Exit status 0: all parts that `hindcast start` or `hindcast join` started have answered, and are alive. 1: the last line says
which has not.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from hindcast.app.system.home import home_folder
from hindcast.app.system.processes import READY, ProcessState, list_processes

IN_ORDER = ("ready", "finished", "paused")


def problem(states: Sequence[ProcessState], *, opened: bool) -> str:
    """What is not in order, in one line; empty if all is. `opened`: whether the run is open here."""
    if not opened or not states:
        return "no run is open in this home yet"
    wrong = [f"{one.name} is {one.state}" for one in states if one.state not in IN_ORDER]
    wrong += [f"{one.name} has ended" for one in states if one.state in ("ready", "paused") and not one.alive]
    return ", ".join(wrong)


def main(home: Path) -> int:
    """Print what is not in order. Returns the exit status."""
    found = problem(list_processes(home / "processes"), opened=(home / READY).exists())
    sys.stdout.write(f"{found or 'all parts answer'}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(home_folder()))
