"""What a person should hear about the processes of a system: that one was started again, or waits for room.

On a full disk the processes cannot even write down that they wait: so its room is looked at here as well.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from hindcast.app.system.broker_disk import ENOUGH_BYTES, free_bytes
from hindcast.app.system.processes import ProcessState


class ProcessAlerts:
    """Compares what the processes say with what they said before."""

    def __init__(self, home: Path, *, free: Callable[[Path], int] = free_bytes) -> None:
        self._home = home
        self._free = free
        self._full = False
        self._last: dict[str, ProcessState] = {}

    def look_at_disk(self) -> list[str]:
        """A line when the home's disk has become full, and one when it is not any more."""
        full = self._free(self._home) < ENOUGH_BYTES
        if full == self._full:
            return []
        self._full = full
        if not full:
            return [f"the disk of {self._home} has room again"]
        return [
            f"the disk of {self._home} is FULL: nothing is lost, everybody waits. Make room; it goes on by itself"
        ]

    def look(self, entries: Iterable[ProcessState]) -> list[str]:
        """Lines about what is new since the last look; nothing at the first sight of a process."""
        lines = []
        for entry in entries:
            before = self._last.get(entry.name)
            self._last[entry.name] = entry
            if before is None:
                continue
            if entry.state == "paused" and before.state != "paused":
                lines.append(f"{entry.name} waits: {entry.detail}")
            elif before.state == "paused" and entry.state == "ready":
                lines.append(f"{entry.name} goes on")
            elif entry.restarts > before.restarts:
                why = f": {entry.detail}" if entry.state == "restarting" else ""
                lines.append(f"{entry.name} is started again (time {entry.restarts}){why}")
        return lines
