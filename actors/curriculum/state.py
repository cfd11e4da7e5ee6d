"""What the curriculum knows, folded from the log: tasks, groups under way, counts that admission rests on.

Invariant "Counters are projections": everything here follows from events alone, deadlines included, so a curriculum
that dies goes on where it was. It grows with the tasks of a run, not with its episodes.

How admission counts (see `core.rl.staleness`; episodes of origin `online` only):
- an episode that ends waits for its verdict, then for the rest of its group, then for the learner;
- it is *discarded* as soon as it is sure that no update will use it: abandoned, cancelled, undecided, swept, used up
  without training, too old for the next batch, or in a group whose members agree. The last must not wait for the
  learner to say so: where all groups agree no batch is ever planned, and admission would stop for good;
- a batch whose weights are out counts as one full batch, however few members its groups had left. Otherwise the gap
  between `version * batch` and what was really trained would grow, and with it the age of what is waiting.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from hindcast.actors.curriculum.groups import Group, Member
from hindcast.actors.curriculum.leases import LeaseBook
from hindcast.actors.curriculum.phases import Phases

RECENT = 64
"""Verdicts per family that its success rate is taken from: a window, since the policy changes."""


class Tally(msgspec.Struct):
    """How often a task was tried and what came of it."""

    groups: int = 0
    decided: int = 0
    reward: float = 0.0
    """Sum over the decided ones."""


class FamilyTally(msgspec.Struct):
    """The same for a family, over a window."""

    groups: int = 0
    recent: list[float] = []
    """Latest rewards, oldest first, at most `RECENT`."""


@dataclass(slots=True)
class CurriculumState:
    """The fold's state. Changed by `CurriculumProjection` alone."""

    position: int = 0
    """The log is known up to here."""
    last_curriculum: int = 0
    """Position of the last event of the `curriculum` family: what the next one expects."""
    last_request: int = 0
    """Position of the last event of the `request` family."""
    phase: int | None = None
    version: int = 0
    """Newest published policy version."""
    updates: int = 0
    """Optimiser steps on the policy so far."""
    published: int = 0
    """Position of its publication; 0: none yet."""
    proposed: set[str] = field(default_factory=set)
    """Ids of tasks."""
    admitted: set[str] = field(default_factory=set)
    """Ids of proposed tasks."""
    rejected: set[str] = field(default_factory=set)
    """Ids of tasks that will not be attempted."""
    groups: dict[str, Group] = field(default_factory=dict)
    """Those under way: an episode, a verdict or the learner is still to come."""
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Episode -> group and member, for the groups under way."""
    opened: Counter[str] = field(default_factory=Counter)
    """Groups ever opened, by origin."""
    ended: Counter[str] = field(default_factory=Counter)
    """Episodes that came to their natural end, by origin."""
    discarded: int = 0
    """Online episodes that reached a terminal fact and that no update used or will use."""
    batch: int = -1
    """Latest batch planned."""
    minibatches: int = 0
    """Mini-batches of it that are not reported yet."""
    applied: int = 0
    """Mini-batches of it that changed the weights."""
    tasks: dict[str, Tally] = field(default_factory=dict)
    """Of tasks that were attempted, by id."""
    families: dict[str, FamilyTally] = field(default_factory=dict)
    phases: Phases = field(default_factory=Phases)
    leases: LeaseBook = field(default_factory=LeaseBook)
    draining: bool = False
    """Somebody asked to begin nothing more; until the run is resumed."""
    drained: bool = False
    """What was waiting then has been cancelled."""

    def members(self, *origins: str) -> Iterator[tuple[Group, Member]]:
        """Members of the groups under way, of these origins or of all."""
        for group in self.groups.values():
            if not origins or group.origin in origins:
                for member in group.members:
                    yield group, member

    @property
    def running(self) -> int:
        """Episodes requested by the curriculum and not terminal."""
        return sum(member.standing == "running" for _, member in self.members())

    @property
    def owed(self) -> int:
        """Episodes promised to groups and not requested yet, retries included."""
        return sum(member.standing == "owed" for _, member in self.members())

    @property
    def waiting(self) -> int:
        """Online episodes that ended and may still be trained on, or are being trained on now."""
        return sum(member.standing in ("ended", "decided", "trained") for _, member in self.members("online"))

    def accepted(self, *, batch: int) -> int:
        """Online episodes that reached a terminal fact, a batch counted as `batch` of them."""
        return self.version * batch + self.waiting + self.discarded
