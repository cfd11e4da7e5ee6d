"""What the curriculum knows, folded from the log: tasks, groups under way, counts that admission rests on.

Invariant "Counters are projections": everything here follows from events alone, deadlines included, so a curriculum
that dies goes on where it was.

How admission counts (see `core.staleness`; episodes of origin `online` only):
- an episode that ends waits for its verdict, then for the rest of its group, then for the learner;
- it is *discarded* as soon as it is sure that no update will use it: abandoned, cancelled, undecided, swept, used up
  without training, too old for the next batch, or in a group whose members agree. The last must not wait for the
  learner to say so: where all groups agree no batch is ever planned, and admission would stop for good;
- a batch whose weights are out counts as one full batch, however few members its groups had left. Otherwise the gap
  between `version * batch` and what was really trained would grow, and with it the age of what is waiting.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from actors.curriculum.groups import Group, Member
from actors.leases import LeaseBook
from core.task import Task

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


class CurriculumState:
    """The fold's state. Changed by `CurriculumProjection` alone."""

    def __init__(self) -> None:
        self.position = 0
        """The log is known up to here."""
        self.last_curriculum = 0
        """Position of the last event of the `curriculum` family: what the next one expects."""
        self.last_request = 0
        """Position of the last event of the `request` family."""
        self.phase: int | None = None
        self.version = 0
        """Newest published policy version."""
        self.proposed: dict[str, Task] = {}
        self.admitted: dict[str, Task] = {}
        """By id, in the order of admission."""
        self.rejected: set[str] = set()
        """Ids of tasks that will not be attempted."""
        self.groups: dict[str, Group] = {}
        """Those under way: an episode, a verdict or the learner is still to come."""
        self.places: dict[str, tuple[str, int]] = {}
        """Episode -> group and member, for the groups under way."""
        self.opened: Counter[str] = Counter()
        """Groups ever opened, by origin."""
        self.ended: Counter[str] = Counter()
        """Episodes that came to their natural end, by origin."""
        self.discarded = 0
        """Online episodes that reached a terminal fact and that no update used or will use."""
        self.batch = -1
        """Latest batch planned."""
        self.minibatches = 0
        """Mini-batches of it that are not reported yet."""
        self.applied = 0
        """Mini-batches of it that changed the weights."""
        self.tasks: dict[str, Tally] = {}
        self.families: dict[str, FamilyTally] = {}
        self.leases = LeaseBook()
        self.draining = False
        """Somebody asked to begin nothing more; until the run is resumed."""
        self.drained = False
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
