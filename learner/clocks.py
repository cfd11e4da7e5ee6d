"""What a computation takes, by two clocks."""

import time
from typing import NamedTuple


class Clocks(NamedTuple):
    """Two clocks, or what went by on them."""

    wall_s: float
    cpu_s: float
    """CPU time of all threads of this process."""

    @classmethod
    def now(cls) -> "Clocks":
        """What they show."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, began: "Clocks") -> "Clocks":
        """What went by between the two."""
        return Clocks(self.wall_s - began.wall_s, self.cpu_s - began.cpu_s)

    def earlier(self, taken: "Clocks") -> "Clocks":
        """What they would have shown so much before."""
        return self.since(taken)


NO_TIME = Clocks(0.0, 0.0)
