"""What it costs to fold a long log, to fold it into tables, to start where it ends, and to ask about it.

    LongLog ──chunks──> reader's checks, learner's fold        events/s, and the cost per event at every size
       └──append──> broker ──fill──> SQLite                    the same
                       └──> fresh processes                    seconds and memory of learner, projector, curriculum
                                                    SQLite ──> seconds of a question

Folds are told in processor time, which work beside them changes little; starts and questions in both. The cost per
event is taken from chunks just before each size: it is what one more event costs there, not an average over all before.
"""

from collections.abc import Sequence
from statistics import fmean

import msgspec

from bench.comparison import interval_of_mean

CHUNK = 250
"""Events that are timed at once."""
CHUNKS_AT = 20
"""Chunks before each size that its cost is taken from, at most; none from its first half, which may begin with tasks."""
MICROSECONDS = 1e6


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure."""

    name: str
    value: float
    unit: str
    low: float | None = None
    """Lower end of its 95 % interval; None: measured once."""
    high: float | None = None
    goal: float | None = None
    """None: merely reported."""
    more_is_better: bool = False
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None: there is none."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.more_is_better else self.value <= self.goal


class Costs:
    """Processor time of a fold, chunk by chunk."""

    def __init__(self) -> None:
        self.chunks: list[tuple[int, int, float]] = []
        """Last position, events, seconds."""

    def add(self, position: int, events: int, cpu_s: float) -> None:
        """One chunk that ended at `position`."""
        self.chunks.append((position, events, cpu_s))

    def rate(self, name: str, *, goal: float | None, detail: str) -> Figure:
        """Events a second of processor time over everything, with the interval of the chunks' mean."""
        each = [cpu_s / events for _, events, cpu_s in self.chunks]
        low, high = interval_of_mean(each)
        return Figure(
            name=name,
            value=1 / fmean(each),
            low=1 / high,
            high=1 / low,
            unit="events/CPU s",
            goal=goal,
            more_is_better=True,
            detail=detail,
        )

    def at(self, size: int) -> list[float]:
        """Microseconds per event of the chunks just before `size`."""
        before = [chunk for chunk in self.chunks if size / 2 < chunk[0] <= size][-CHUNKS_AT:]
        return [cpu_s / events * MICROSECONDS for _, events, cpu_s in before]

    def growth(self, name: str, sizes: Sequence[int]) -> list[Figure]:
        """Cost per event at every size, and of the last compared with the first: 1 is flat."""
        figures = []
        for size in sizes:
            each = self.at(size)
            low, high = interval_of_mean(each)
            label = f"{name}: one more event at {size:,}"
            figures.append(Figure(name=label, value=fmean(each), low=low, high=high, unit="CPU us"))
        first, last = self.at(sizes[0]), self.at(sizes[-1])
        (low_first, high_first), (low_last, high_last) = interval_of_mean(first), interval_of_mean(last)
        figures.append(
            Figure(
                name=f"{name}: at {sizes[-1]:,} against {sizes[0]:,}",
                value=fmean(last) / fmean(first),
                low=low_last / high_first,
                high=high_last / low_first,
                unit="times",
                goal=GROWTH,
            )
        )
        return figures


GROWTH = 1.25
"""Cost per event at the largest size against the smallest that counts as flat."""
