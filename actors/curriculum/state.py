"""The curriculum's state, folded from the log: tasks, running groups, and the counts that admission rests on.

Invariant "Counters are projections": everything here follows from events alone, so a curriculum that dies continues
where it stopped. The state grows with the tasks of a run, not with its episodes.

How admission counts (see `core.rl.staleness`; episodes of origin `online` only, and those of evaluations nowhere but in
`evaluations`):
- an episode that ends waits for its verdict, then for the rest of its group, then for the learner;
- it is *discarded* as soon as no update can use it: abandoned, cancelled, undecided, swept, used up without training, too
  old for the next batch, or in a group whose members agree. The last must not wait for the learner: where all groups
  agree no batch is ever planned, and admission would stop for good;
- a batch whose weights are published counts as one full batch, however few members its groups had left. Otherwise the
  gap between `version * batch` and the trained episodes would grow, and with it the age of waiting episodes.

A member of a group has one or more attempts. An `owed` episode is promised but not requested yet. It counts like a running
episode in admission, so that an opened group can always be completed.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from hindcast.actors.curriculum.evaluations import Evaluations
from hindcast.actors.curriculum.leases import LeaseBook
from hindcast.actors.curriculum.phases import Phases
from hindcast.core.domain.task import Task

Standing = Literal["owed", "running", "ended", "decided", "trained", "lost"]
"""`ended`: waits for its verdict; `decided`: has one; `trained`: is in a batch whose weights are not published yet."""


class Member(msgspec.Struct):
    """A member of a group: one episode of its task, requested again where an attempt was lost."""

    standing: Standing = "owed"
    attempt: int = 0
    """Attempt number of the episode, or of the owed one."""
    started: int = 0
    """Attempts that an actor began: only these count as attempts of the task."""
    episode: str | None = None
    """Latest episode requested for this place."""
    reward: float = 0.0
    oldest_version: int = 0
    """Lowest policy version that sampled a token of the episode."""
    requested: int = 0
    """Position of the latest request for this place."""
    steps: int = 0
    """Steps of the episode, once it has ended."""


class Group(msgspec.Struct):
    """Episodes of one task that are compared with each other."""

    id: str
    task: Task
    origin: str
    members: list[Member]
    revisits: bool = False
    """Whether its task is from an earlier phase, drawn again against forgetting."""
    hasty: bool = False
    """Whether the demonstrator is in haste (`curriculum.hasty_share`)."""
    batch: int | None = None
    """The batch it was planned into; from then on no episode is requested for it."""

    def standing(self, *standings: Standing) -> int:
        """Number of members with one of the given standings."""
        return sum(member.standing in standings for member in self.members)

    @property
    def family(self) -> str:
        """The task family, such as `store/find_price`."""
        return f"{self.task.environment}/{self.task.family}"

    @property
    def unfinished(self) -> bool:
        """Whether an episode or a verdict is still to come."""
        return self.standing("owed", "running", "ended") > 0


RECENT = 64
"""Verdicts per family for its success rate: a window, because the policy changes."""


class Tally(msgspec.Struct):
    """How often a task was attempted, and with what result."""

    groups: int = 0
    decided: int = 0
    reward: float = 0.0
    """Sum of the rewards of the decided episodes."""


class FamilyTally(msgspec.Struct):
    """How often a family was attempted, and its latest results."""

    groups: int = 0
    recent: list[float] = []
    """Latest rewards, oldest first, at most `RECENT`."""


@dataclass(slots=True)
class CurriculumState:
    """State of the fold. Only `CurriculumProjection` changes it."""

    position: int = 0
    """Position of the last event folded."""
    last_curriculum: int = 0
    """Position of the last event of the `curriculum` family: what the next one expects."""
    last_request: int = 0
    """Position of the last event of the `request` family."""
    phase: int | None = None
    version: int = 0
    """Newest published policy version."""
    updates: int = 0
    """Optimizer steps on the policy so far."""
    published: int = 0
    """Position of the publication of `version`; 0: none yet."""
    proposed: set[str] = field(default_factory=set)
    """Ids of proposed tasks."""
    admitted: set[str] = field(default_factory=set)
    """Ids of admitted tasks."""
    rejected: set[str] = field(default_factory=set)
    """Ids of tasks that will not be attempted."""
    groups: dict[str, Group] = field(default_factory=dict)
    """Running groups: an episode, a verdict or the learner is still to come."""
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Episode -> group and member, for the running groups."""
    opened: Counter[str] = field(default_factory=Counter)
    """Groups ever opened, by origin."""
    ended: Counter[str] = field(default_factory=Counter)
    """Episodes that ended (episode.ended), by origin."""
    discarded: int = 0
    """Online episodes with a terminal event that no update used or will use."""
    batch: int = -1
    """Latest batch planned."""
    minibatches: int = 0
    """Mini-batches of the latest batch that are not reported yet."""
    applied: int = 0
    """Mini-batches of the latest batch that changed the weights, until these are published."""
    tasks: dict[str, Tally] = field(default_factory=dict)
    """Tallies of attempted tasks, by id."""
    families: dict[str, FamilyTally] = field(default_factory=dict)
    phases: Phases = field(default_factory=Phases)
    leases: LeaseBook = field(default_factory=LeaseBook)
    draining: bool = False
    """Whether a drain is in force: no episode begins until the run is resumed."""
    drained: bool = False
    """Whether the episodes that waited at the drain have been cancelled."""
    ending: bool = False
    """Whether the drain asks to evaluate the newest version before it is applied."""
    evaluations: Evaluations = field(default_factory=Evaluations)

    @property
    def is_publishing(self) -> bool:
        """Whether the latest batch is trained and its weights are still to be published."""
        return self.minibatches <= 0 and self.applied > 0

    def members(self, *origins: str) -> Iterator[tuple[Group, Member]]:
        """Members of the running groups, of the given origins or of all."""
        for group in self.groups.values():
            if not origins or group.origin in origins:
                for member in group.members:
                    yield group, member

    @property
    def running(self) -> int:
        """Requested episodes of the curriculum without a terminal event."""
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
        """Online episodes with a terminal event; each published batch counts as `batch` of them."""
        return self.version * batch + self.waiting + self.discarded
