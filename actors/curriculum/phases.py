"""Phases: how the run is divided, and what each is made from, as part of the curriculum's fold.

A phase is *full* after `learner.phase_episodes` decided online episodes, in the order of their verdicts; it is *over* once
weights are out that a batch planned after that led to: then the policy, and the critic where there is one, have seen it,
and the newest version is what the next phase refers to.

What the tasks of a phase are made from (failed tasks, first pages, the critic) is held as it stood when the phase began:
whoever goes on with them after a restart makes the same ones.
"""

from dataclasses import dataclass, field

import msgspec

from hindcast.core.domain.task import Task
from hindcast.core.ids import digest_hex
from hindcast.core.rl.combined_state import ORM
from hindcast.events.catalogue import TaskChecked, TaskProposed, WeightsPublished
from hindcast.events.envelope import BlobRef

FAILED_BELOW = 0.5
"""A task has failed in a phase if the mean reward of its decided episodes is less."""


class AttemptedTask(msgspec.Struct):
    """A task that was decided in the phase under way."""

    task: Task
    decided: int = 0
    reward: float = 0.0
    """Sum over the decided ones."""

    @property
    def failed(self) -> bool:
        """Whether it seeds tasks of the next phase."""
        return self.reward < FAILED_BELOW * self.decided


class PhaseBasis(msgspec.Struct):
    """What the tasks of a phase are made from and valued with."""

    pages: dict[str, BlobRef] = {}
    """The first page of the latest episode of a family (`store/find_price`) that began."""
    critic: WeightsPublished | None = None
    """The newest critic."""
    orm: WeightsPublished | None = None
    """The newest outcome reward model."""

    def valuing(self, model: str) -> WeightsPublished | None:
        """The version that values first states; `model`: as `evolution.valued_by` names it."""
        return self.orm if model == ORM else self.critic


@dataclass(slots=True)
class Phases:
    """The phase under way. Changed by the curriculum's projection alone."""

    decided: int = 0
    """Online episodes decided since it began, those beyond a full phase included: they are the next one's."""
    planned: bool = False
    """It was full when the latest batch of the policy was planned."""
    over: bool = False
    """The next one may begin."""
    attempted: dict[str, AttemptedTask] = field(default_factory=dict)
    """Tasks decided in it, by id."""
    beyond: dict[str, AttemptedTask] = field(default_factory=dict)
    """Likewise of the next one: decided since this one was full."""
    seeds: list[Task] = field(default_factory=list)
    """Those that failed in the phase before."""
    ground: PhaseBasis = field(default_factory=PhaseBasis)
    """As it was when the phase began."""
    latest: PhaseBasis = field(default_factory=PhaseBasis)
    """As it is now."""
    candidates: list[str] = field(default_factory=list)
    """Ids of the tasks that were generated for it, in their order."""
    values: dict[str, float] = field(default_factory=dict)
    """Of those among them that were valued."""
    checked: dict[str, TaskChecked] = field(default_factory=dict)
    """What a model said of those among them that it was asked about."""
    generated: dict[str, Task] = field(default_factory=dict)
    """Every generated task by id, of all phases: the settings do not name them."""
    phase_of: dict[str, int] = field(default_factory=dict)
    """For which phase each of them was admitted."""
    asked: set[str] = field(default_factory=set)
    """What all tasks ever proposed ask for (`wording`, `meaning`)."""
    revisits: int = 0
    """Groups that were drawn from the tasks of earlier phases."""

    def judge(self, task: Task, reward: float, *, episodes: int) -> None:
        """An online episode of a task was decided. `episodes`: how many fill a phase; 0: the run is one."""
        if not episodes:
            return
        self.decided += 1
        tried = self.attempted if self.decided <= episodes else self.beyond
        attempted = tried.setdefault(task.id, AttemptedTask(task))
        attempted.decided += 1
        attempted.reward += reward

    def plan(self, *, episodes: int) -> None:
        """A batch of the policy was planned."""
        self.planned = 0 < episodes <= self.decided

    def publish(self) -> None:
        """Weights of the policy are out."""
        self.over = self.over or self.planned

    def begin(self, *, episodes: int) -> None:
        """The next phase begins, with the episodes that the one before had no use for."""
        self.seeds = [one.task for one in self.attempted.values() if one.failed]
        self.ground = PhaseBasis(
            pages=dict(self.latest.pages), critic=self.latest.critic, orm=self.latest.orm
        )
        self.decided, self.planned, self.over = max(0, self.decided - episodes), False, False
        self.attempted, self.beyond = self.beyond, {}
        self.candidates, self.values, self.checked = [], {}, {}

    def propose(self, fact: TaskProposed) -> None:
        """A task was proposed."""
        self.asked |= {wording(fact.task), meaning(fact.task)}
        if fact.phase is not None and fact.task.id not in self.generated:
            self.generated[fact.task.id] = fact.task
            self.candidates.append(fact.task.id)


def wording(task: Task) -> str:
    """A task's instruction as it is compared with others: case, spacing and the last mark say nothing."""
    return " ".join(task.instruction.casefold().split()).rstrip(".?! ")


def meaning(task: Task) -> str:
    """A digest of the task's goal, in whatever words."""
    return digest_hex(msgspec.json.encode((task.environment, task.family, task.goal), order="sorted"))[:16]
