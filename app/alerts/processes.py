"""Alerts about a system's processes: restarts, and waiting for disk space.

On a full disk the processes cannot write their state, so this also checks the disk itself.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from hindcast.app.system.bus import ENOUGH_BYTES, free_bytes
from hindcast.app.system.processes import ProcessState, list_processes


class ProcessAlerts:
    """Compares the processes' states with their states at the last check."""

    def __init__(self, home: Path, *, free: Callable[[Path], int] = free_bytes) -> None:
        self._home = home
        self._free = free
        self._full = False
        self._last: dict[str, ProcessState] = {}

    def changes(self) -> list[str]:
        """Lines about the disk and the processes since the last call."""
        return self.look_at_disk() + self.look(list_processes(self._home / "processes"))

    def look_at_disk(self) -> list[str]:
        """A line when the home's disk becomes full, and one when it has space again."""
        full = self._free(self._home) < ENOUGH_BYTES
        if full == self._full:
            return []
        self._full = full
        if not full:
            return [f"the disk of {self._home} has room again"]
        return [
            f"the disk of {self._home} is FULL: no event is lost and all roles wait. Free space; the system then continues by itself"
        ]

    def look(self, entries: Iterable[ProcessState]) -> list[str]:
        """Lines about changes since the last check; none when a process is first seen."""
        lines = []
        for entry in entries:
            before = self._last.get(entry.name)
            self._last[entry.name] = entry
            if before is None:
                continue
            if entry.state == "paused" and before.state != "paused":
                lines.append(f"{entry.name} waits: {entry.detail}")
            elif before.state == "paused" and entry.state == "ready":
                lines.append(f"{entry.name} works again")
            elif entry.restarts > before.restarts:
                why = (
                    f": {entry.detail}" if entry.state in ("restarting", "starting") and entry.detail else ""
                )
                lines.append(f"{entry.name} is started again (time {entry.restarts}){why}")
        return lines
