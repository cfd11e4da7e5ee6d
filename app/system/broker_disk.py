"""Restart the broker after its disk was full.

After a failed write nats-server keeps running and serving reads, but never writes to that stream again, and publishers
get no answer. A restart restores everything that it acknowledged. So this watches the broker's output: after a failed
write it asks for a restart as soon as the disk has `ENOUGH_BYTES` free. If writes fail although there is room (a quota, a
broken disk), the pause between restarts grows up to `LONGEST_PAUSE_S`.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

FAILED = ("no space left on device", "disk quota exceeded", "file too large", "input/output error")
"""Error texts of the operating system for a failed write, as nats-server logs them."""
ENOUGH_BYTES = 16 * 1024 * 1024
"""Two of the broker's blocks."""
CHECK_S = 0.5
REMIND_S = 60.0
LONGEST_PAUSE_S = 60.0

Say = Callable[[str, str], None]
"""Takes a process state and a detail for people."""


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk that holds a folder."""
    return shutil.disk_usage(folder).free


class BrokerDisk:
    """Asks for a restart of the broker after failed writes; implements `supervisor.WorkerWatch`."""

    def __init__(
        self,
        store: Path,
        *,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """Watch the broker whose store is in `store`; `say` shows the state to people."""
        self._store = store
        self._say = say
        self._clock = clock
        self._free = free
        self._failed = False
        self._check_at = 0.0
        self._remind_at = 0.0
        self._pause_s = 0.0
        self._renewed_at = float("-inf")

    def heard(self, line: str) -> None:
        """Read one line of the broker's output."""
        if self._failed or not ("[ERR]" in line or "[FTL]" in line) or not any(w in line for w in FAILED):
            return
        now = self._clock()
        again = now - self._renewed_at < 2 * max(self._pause_s, CHECK_S) + REMIND_S
        self._pause_s = min(LONGEST_PAUSE_S, max(1.0, 2 * self._pause_s)) if again else 0.0
        self._failed = True
        self._check_at = now + self._pause_s
        self._remind_at = now

    def wants_renewal(self) -> bool:
        """Whether the supervisor should restart the broker now."""
        now = self._clock()
        if not self._failed:
            return False
        if now >= self._remind_at:
            self._remind_at = now + REMIND_S
            self._say(
                "paused",
                f"the broker cannot write to {self._store} ({self._free(self._store) / 2**20:.0f} MiB free): no event "
                "is lost and all roles wait. Free space on that disk; the broker then restarts by itself",
            )
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_S
        if self._free(self._store) < ENOUGH_BYTES:
            return False
        self._failed = False
        self._renewed_at = now
        return True
