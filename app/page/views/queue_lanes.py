"""Lanes of the timeline for work that waits: how many episodes are in each queue over a stretch of time."""

from collections.abc import Sequence

import msgspec
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
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
    width_ns = until_ns - since_ns
    entered = np.maximum(np.array([entered_ns for entered_ns, _ in waits], np.int64), since_ns)
    left = np.array([left_ns for _, left_ns in waits if left_ns is not None], np.int64)
    left = left[left < until_ns]
    times, at = np.unique(np.concatenate(([since_ns], entered, left)), return_inverse=True)
    changes = np.concatenate(([0], np.ones(len(entered), np.int64), -np.ones(len(left), np.int64)))
    waiting = np.bincount(at, changes).cumsum().astype(np.int64)
    ends = np.append(times[1:], until_ns)
    first_columns, last_columns = _column(times - since_ns, width_ns), _column(ends - since_ns - 1, width_ns)
    columns = np.zeros(COLUMNS, np.int64)
    np.maximum.at(columns, first_columns, waiting)
    for change in np.flatnonzero(last_columns > first_columns):  # at most one for each column's end
        across = slice(first_columns[change] + 1, last_columns[change] + 1)
        columns[across] = np.maximum(columns[across], waiting[change])
    holds, waits_for = QUEUES[name]
    return QueueLane(
        name=name,
        holds=holds,
        waits_for=waits_for,
        average=int(waiting @ (ends - times)) / width_ns,
        first=int(waiting[0]),
        last=int(waiting[-1]),
        most=int(columns.max()),
        columns=_merged(columns.tolist(), width_ns / SECOND_NS / COLUMNS),
    )


def _column(after_ns: NDArray[np.int64], width_ns: int) -> NDArray[np.int64]:
    return np.clip(after_ns * COLUMNS // width_ns, 0, COLUMNS - 1)


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
