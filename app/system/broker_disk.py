"""A broker whose disk was full is started again once there is room.

nats-server does not end when a write fails, and never writes to that stream again, room or not: it goes on reading, and
whoever appends hears nothing. Started again it restores everything it has acknowledged. So its own words are listened to:
after a failed write the broker is renewed as soon as its disk has `ENOUGH_BYTES`. Where that is so already (a quota, a
broken disk) renewals get rarer and rarer, `LONGEST_PAUSE_S` apart in the end.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

FAILED = ("no space left on device", "disk quota exceeded", "file too large", "input/output error")
"""The system's words for a write that failed, as nats-server repeats them."""
ENOUGH_BYTES = 16 * 1024 * 1024
"""Two of the broker's blocks."""
CHECK_S = 0.5
REMIND_S = 60.0
LONGEST_PAUSE_S = 60.0

Say = Callable[[str, str], None]
"""State and detail."""


def free_bytes(folder: Path) -> int:
    """Room on the disk that holds a folder."""
    return shutil.disk_usage(folder).free


class BrokerDisk:
    """See `supervisor.Watch`."""

    def __init__(
        self,
        store: Path,
        *,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """`store` is the broker's folder; `say` tells people."""
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
        """One line of the broker's output."""
        if self._failed or not ("[ERR]" in line or "[FTL]" in line) or not any(w in line for w in FAILED):
            return
        now = self._clock()
        again = now - self._renewed_at < 2 * max(self._pause_s, CHECK_S) + REMIND_S
        self._pause_s = min(LONGEST_PAUSE_S, max(1.0, 2 * self._pause_s)) if again else 0.0
        self._failed = True
        self._check_at = now + self._pause_s
        self._remind_at = now

    def wants_renewal(self) -> bool:
        """Whether the broker is to be started again now."""
        now = self._clock()
        if not self._failed:
            return False
        if now >= self._remind_at:
            self._remind_at = now + REMIND_S
            self._say(
                "paused",
                f"the broker cannot write to {self._store} ({self._free(self._store) / 2**20:.0f} MiB free): nothing is "
                "lost, everybody waits. Make room on that disk; it goes on by itself",
            )
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_S
        if self._free(self._store) < ENOUGH_BYTES:
            return False
        self._failed = False
        self._renewed_at = now
        return True
