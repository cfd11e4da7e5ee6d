"""Supervise one worker of a role. A Procfile line runs it: `python -m hindcast.app.system ROLE`."""

import os
import sys
from pathlib import Path

from hindcast.app.system.forked_workers import ForkServerClient
from hindcast.app.system.home import home_folder, restrict_new_files
from hindcast.app.system.processes import READY, pid_alive, read_json
from hindcast.app.system.supervisor import MACHINE, Supervisor, instance_name

OPTIONAL = ("archiver", "relabeler")
"""Roles that some runs do not need."""


def main() -> int:
    """Supervise the role named on the command line."""
    role = sys.argv[1]
    named = os.environ.get("HONCHO_PROCESS_NAME") or f"{role}.1"
    name = instance_name(named, machine=os.environ.get(MACHINE, ""))
    home = home_folder()
    restrict_new_files(home)
    folder = home / "processes"
    if role == "bus":
        from hindcast.app.system.bus import (
            run_bus,  # only this role needs the broker's code; the others stay small
        )

        return run_bus(name, folder)
    client = ForkServerClient(folder, role, name, is_stopping=lambda: supervisor.is_stopping())
    supervisor = Supervisor(
        name,
        lambda: (sys.executable, "-P", "-m", "hindcast.app.system.worker", role, name),
        fork=client.start,
        folder=folder,
    )
    supervisor.catch_signals()
    if role in OPTIONAL and not _has_work(supervisor, home, role):
        supervisor.idle()
        return 0
    return supervisor.run()


def _has_work(supervisor: Supervisor, home: Path, role: str) -> bool:
    """Whether the run needs the role. Waits until the bus has opened the run, so that an unneeded worker takes no memory."""
    while not supervisor.is_stopping():
        ready = read_json(home / READY)
        if ready is not None and pid_alive(int(ready["bus_pid"])):
            return role not in ready["idle"]
        supervisor.pause()
    return False


if __name__ == "__main__":
    sys.exit(main())
