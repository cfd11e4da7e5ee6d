"""Lanes of the timeline for work that waits: how many episodes are in each queue over a stretch of time."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from markupsafe import Markup
from sqlalchemy import Connection

from hindcast.storage.readmodel.queue_queries import Wait, queue_waits

SECOND_NS = 1_000_000_000
QUEUES = {
    "to play": ("requested", "an actor"),
    "to judge": ("ended", "the judge"),
    "to train": ("judged", "the learner"),
}
"""Lane -> which episodes wait in it, and for whom."""
COLUMNS = 240
"""Most bars of a lane; a bar has the highest number of its part of the stretch."""
TALL = 30
"""Height of the highest bar in pixels."""


class QueueColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the stretch; seconds from its beginning."""

    begin_s: float
    end_s: float
    most: int
    """Most episodes that waited at once."""


class QueueLane(msgspec.Struct, frozen=True, kw_only=True):
    """One queue in a stretch of time."""

    name: str
    holds: str
    """Which episodes wait: `requested`, `ended` or `judged`."""
    waits_for: str
    """Which part of the run takes them: `an actor`, `the judge` or `the learner`."""
    average: float
    """Episodes that waited, averaged over the stretch."""
    first: int
    """Episodes that waited at its beginning."""
    last: int
    """Episodes that waited at its end."""
    most: int
    columns: list[QueueColumn]
    """Parts of the stretch with a waiting episode, in order; neighbors with the same number are one."""


def queue_lanes(connection: Connection, *, position: int, since_ns: int, until_ns: int) -> list[QueueLane]:
    """The queues in which an episode waited in the stretch, as of a position."""
    waits = queue_waits(connection, since_ns=since_ns, until_ns=until_ns, as_of=position)
    lanes = [
        lane_of(name, waiting, since_ns=since_ns, until_ns=until_ns)
        for name, waiting in zip(QUEUES, waits, strict=True)
    ]
    return [lane for lane in lanes if lane.most]


def lane_of(name: str, waits: Sequence[Wait], *, since_ns: int, until_ns: int) -> QueueLane:
    """A queue's lane from its waits, all of which overlap the stretch."""
    changes: dict[int, int] = {since_ns: 0}
    for wait in waits:
        begin = max(since_ns, wait.entered_ns)
        changes[begin] = changes.get(begin, 0) + 1
        if wait.left_ns is not None and wait.left_ns < until_ns:
            changes[wait.left_ns] = changes.get(wait.left_ns, 0) - 1
    width_ns = until_ns - since_ns
    columns, waiting, summed, first = [0] * COLUMNS, 0, 0, 0
    for begin, end in pairwise([*sorted(changes), until_ns]):
        waiting += changes[begin]
        summed += waiting * (end - begin)
        first = waiting if begin == since_ns else first
        for place in range(_column(begin - since_ns, width_ns), _column(end - since_ns - 1, width_ns) + 1):
            columns[place] = max(columns[place], waiting)
    holds, waits_for = QUEUES[name]
    return QueueLane(
        name=name,
        holds=holds,
        waits_for=waits_for,
        average=summed / width_ns,
        first=first,
        last=waiting,
        most=max(columns),
        columns=_merged(columns, width_ns / SECOND_NS / COLUMNS),
    )


def _column(after_ns: int, width_ns: int) -> int:
    return max(0, min(COLUMNS - 1, after_ns * COLUMNS // width_ns))


def _merged(columns: Sequence[int], wide_s: float) -> list[QueueColumn]:
    found: list[QueueColumn] = []
    begin = 0
    for end in range(1, COLUMNS + 1):
        if end == COLUMNS or columns[end] != columns[begin]:
            if columns[begin]:
                found.append(QueueColumn(begin_s=begin * wide_s, end_s=end * wide_s, most=columns[begin]))
            begin = end
    return found


def queues_in_words(lanes: Sequence[QueueLane]) -> str:
    """Say how much waited for whom in the stretch, and which queue grew most; empty if nothing waited."""
    if not lanes:
        return ""
    listed = [f"{lane.average:.1f} {lane.holds} for {lane.waits_for}" for lane in lanes]
    text = f"Episodes that wait, on average: {', '.join(listed)}."
    grown = max(lanes, key=lambda lane: lane.last - lane.first)
    if grown.last <= grown.first:
        return f"{text} No queue is longer at the end of the stretch than at its beginning."
    return f"{text} The queue for {grown.waits_for} grew most, from {grown.first} to {grown.last}."


def drawn(lane: QueueLane, *, top: float, window_s: float) -> Markup:
    """The bars of a lane, whose highest begins at `top`."""
    bars = Markup("").join(
        Markup(
            '<rect class="queue" x="{x}%" y="{y}" width="{width}%" height="{tall}"><title>{most} {holds}, waiting for {whom}</title></rect>'
        ).format(
            x=f"{100 * one.begin_s / window_s:.2f}",
            y=f"{top + TALL - tall:.1f}",
            width=f"{100 * (one.end_s - one.begin_s) / window_s:.2f}",
            tall=f"{tall:.1f}",
            most=one.most,
            holds=lane.holds,
            whom=lane.waits_for,
        )
        for one in lane.columns
        for tall in (TALL * one.most / lane.most,)
    )
    label = Markup('<text class="lane" x="-80" y="{}">{}<tspan x="-80" dy="13">most {}</tspan></text>')
    return label.format(f"{top + 12:.0f}", lane.name, lane.most) + bars
