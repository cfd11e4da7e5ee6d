"""Whether a home's system works on a run at this moment, by its processes' state files."""

from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.launch import read_launch
from hindcast.app.system.processes import WORKING, list_processes


def is_running(run: RunHandle, role: str = "bus") -> bool:
    """Whether a process of this role is alive and at work on this run."""
    launch = read_launch(run.home)
    return (
        launch is not None
        and launch.run == run.name
        and any(
            one.alive and one.state in WORKING and one.name.startswith(role)
            for one in list_processes(run.home / "processes")
        )
    )
