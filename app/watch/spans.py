"""Time spans in which something was busy, and their share of a window."""

from collections import deque

import msgspec

Span = tuple[int, int]


class Spans(msgspec.Struct):
    """Past spans, newest last; times in ns."""

    over: deque[Span] = msgspec.field(default_factory=deque)

    def add(self, began_ns: int, ended_ns: int, *, keep_ns: int) -> None:
        """Add a span; drop those that ended more than `keep_ns` before it."""
        self.over.append((began_ns, max(began_ns, ended_ns)))
        while self.over and self.over[0][1] < ended_ns - keep_ns:
            self.over.popleft()

    def within(self, window: Span, *, under_way: list[int]) -> list[Span]:
        """The parts inside a window; `under_way`: begin times of spans that have not ended."""
        first, last = window
        spans = [*self.over, *((began, last) for began in under_way)]
        clipped = ((max(first, began), min(last, ended)) for began, ended in spans)
        return [(began, ended) for began, ended in clipped if ended > began]


def total_ns(spans: list[Span]) -> int:
    """Total length, overlaps counted repeatedly."""
    return sum(ended - began for began, ended in spans)


def covered_ns(spans: list[Span]) -> int:
    """Length of their union."""
    covered, reached = 0, 0
    for began, ended in sorted(spans):
        covered += max(0, ended - max(began, reached))
        reached = max(reached, ended)
    return covered
