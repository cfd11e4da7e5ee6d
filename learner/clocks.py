"""Wall and CPU time of a computation."""

import time
from typing import NamedTuple


class Clocks(NamedTuple):
    """Readings of two clocks in seconds, or a difference of readings."""

    wall_s: float
    cpu_s: float
    """CPU time of all threads of this process."""

    @classmethod
    def now(cls) -> "Clocks":
        """Read both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, began: "Clocks") -> "Clocks":
        """Durations between two readings."""
        return Clocks(self.wall_s - began.wall_s, self.cpu_s - began.cpu_s)

    def earlier(self, taken: "Clocks") -> "Clocks":
        """Readings shifted back by durations."""
        return self.since(taken)


NO_TIME = Clocks(0.0, 0.0)
