"""State files of a home's processes: one small JSON file each, written atomically.

They are for people and tests (`hindcast doctor`, kill -9 tests). No role reads another role's state from them
(invariant 1: the log is the truth).
"""

import json
import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hindcast.core.structs import convert
from hindcast.core.text.plain_values import parse_json
from hindcast.events.disk import PRIVATE_FILE, PRIVATE_FOLDER


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """State that one process reported last."""

    name: str
    pid: int
    state: str
    """`starting`, `ready`, `crashed`, `restarting`, `paused` (no disk space), `finished`, `stopped` or `failed`."""
    restarts: int = 0
    since: float = 0.0
    """Unix seconds."""
    detail: str = ""

    @property
    def alive(self) -> bool:
        """Whether a process with this pid exists."""
        return pid_alive(self.pid)


CRASHED = "crashed"
"""State of a worker between an error and its restart; the detail says what was raised and, of an unexpected one, where."""


def pid_alive(pid: int) -> bool:
    """Whether a process with this pid exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return True


def process_began(pid: int) -> float | None:
    """Start time of a process, which identifies it together with its number; None if it does not exist.

    In seconds since boot where the system reports it: unix time changes when the clock is set, and a living process would
    look like another.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        import psutil  # where there is no /proc; supervisors load this module and stay small
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def write_json(path: Path, content: Any) -> None:
    """Write atomically: a reader sees the old content or the new, never a part."""
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "w") as file:
        file.write(json.dumps(content))
    temporary.replace(path)


def read_json(path: Path) -> Any | None:
    """The content; None if there is no such file or it is not JSON."""
    try:
        return parse_json(path.read_text())
    except (OSError, ValueError):
        return None


def report(folder: Path, *, name: str, pid: int, state: str, restarts: int = 0, detail: str = "") -> None:
    """Record what process `name` is doing. A full disk does not stop the caller; the record is then skipped."""
    entry = ProcessState(name=name, pid=pid, state=state, restarts=restarts, since=time.time(), detail=detail)
    with suppress(OSError):
        write_json(folder / f"{name}.json", msgspec.to_builtins(entry))


def list_processes(folder: Path) -> list[ProcessState]:
    """The last state of every process, by name."""
    found = []
    for path in sorted(folder.glob("*.json")):
        content = read_json(path)
        if content is not None:
            with suppress(msgspec.ValidationError):  # damaged; its process will write it again
                found.append(convert(content, ProcessState))
    return found


def crash_reason(folder: Path, name: str, *, pid: int) -> str:
    """What the process raised that ended; empty if it ended otherwise, for instance by a signal."""
    match read_json(folder / f"{name}.json"):
        case {"pid": reported, "state": state, "detail": str(reason)} if (reported, state) == (pid, CRASHED):
            return reason
    return ""


READY = "ready.json"
"""Written once the run is open: the process id of the bus, the broker's port, and the roles without work."""
FAILURE = "failure.json"
"""Message for people about the failure that stopped the system, when no restart could help."""


def report_failure(home: Path, *, name: str, message: str) -> None:
    """Record a failure for the command that started the system; skipped on a full disk, as in `report`."""
    with suppress(OSError):
        write_json(home / FAILURE, {"name": name, "message": message})


WORKING = ("starting", "ready", "restarting")


def others_working(folder: Path, *, besides: Collection[str]) -> bool:
    """Whether a process of a role other than `besides` is alive."""
    return any(
        entry.alive and entry.state in WORKING and entry.name.split(".")[0] not in besides
        for entry in list_processes(folder)
    )
