"""What every side of `hindcast bench actor` does: the same clicks on the same problems of MiniWoB++.

A play is recorded once, with the scripted demonstrator of its family, on a bare page: the element numbers that ours
and the bare loop act upon, and the points that BrowserGym clicks. So nobody thinks while it is measured, and each side
must win what the demonstrator won: a side that loses plays did something else, and its figure would mean nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice

import msgspec
import numpy

from hindcast.actors.environments.miniwob.tasks import MiniwobTasks
from hindcast.core.domain.task import Task

FAMILIES = (
    "click-button",
    "click-test-2",
    "click-link",
    "click-button-sequence",
    "click-option",
    "click-checkboxes",
)
"""Pages on which clicks alone do it, without animations whose timing would differ between the sides."""
IN_A_ROW = 8
"""Episodes of a family that follow each other, as a group of the curriculum does."""
GYM_SEEDS = 1_000_000
"""BrowserGym seeds the page with a number below this, drawn from the seed of the reset."""


class Click(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    element: int
    """The number that the snapshot gave."""
    x: float
    y: float


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """One episode, to be played as it stands here."""

    task: Task
    """Its seed is what the page itself is seeded with, on all sides."""
    gym_seed: int
    """What BrowserGym's reset is given, to seed the page so."""
    clicks: tuple[Click, ...]


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What a side did in how long."""

    episodes: int
    steps: int
    won: int
    """Episodes with a reward."""
    wall_s: float
    contents: dict[str, str] = {}
    """What one observation holds, part by part."""

    @property
    def rate(self) -> float:
        """Steps per second, resets included in the time."""
        return self.steps / self.wall_s


def problems(count: int, *, first: int = 0) -> Iterator[tuple[Task, int]]:
    """So many problems with the seed of BrowserGym's reset: rows of a family, family after family."""
    order = cycle(family for family in FAMILIES for _ in range(IN_A_ROW))
    for number, family in enumerate(islice(order, count)):
        gym_seed = first + number
        yield MiniwobTasks().task(family, page_seed(gym_seed)), gym_seed


def page_seed(gym_seed: int) -> int:
    """The page's seed that BrowserGym derives from the seed of its reset."""
    return int(numpy.random.RandomState(gym_seed).randint(0, GYM_SEEDS))


def spread(plays: Sequence[Play], count: int) -> list[Play]:
    """The first `count` plays when families take turns: a short measurement with the same mix as a long one."""
    rows = [[play for play in plays if play.task.family == family] for family in FAMILIES]
    turns = [play for column in range(len(plays)) for row in rows for play in row[column : column + 1]]
    return turns[:count]
