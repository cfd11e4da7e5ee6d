"""Phases: how the run is divided, and what the tasks of each are made from, as part of the curriculum's fold.

A phase is *full* after `learner.phase_episodes` decided online episodes, in the order of their verdicts. It is *over*
once weights are published from a batch planned after that. Then the policy, and the critic if there is one, have trained
on it, and the next phase refers to the newest version.

The basis of a phase's tasks (failed tasks, first pages, the critic) is fixed when the phase begins, so that a restart
makes the same tasks.
"""

from dataclasses import dataclass, field

import msgspec

from hindcast.core.domain.task import Task
from hindcast.core.ids import digest_hex
from hindcast.core.rl.combined_state import ORM
from hindcast.events.catalogue import TaskChecked, TaskProposed, WeightsPublished
from hindcast.events.envelope import BlobRef

FAILED_BELOW = 0.5
"""A task failed in a phase if the mean reward of its decided episodes is lower."""


class AttemptedTask(msgspec.Struct):
    """A task with decided episodes in the current phase."""

    task: Task
    decided: int = 0
    reward: float = 0.0
    """Sum of the rewards of the decided episodes."""

    @property
    def failed(self) -> bool:
        """Whether the task seeds tasks of the next phase."""
        return self.reward < FAILED_BELOW * self.decided


class PhaseBasis(msgspec.Struct):
    """What the tasks of a phase are made from and valued with."""

    pages: dict[str, BlobRef] = {}
    """By family (such as `store/find_price`): the first page of its latest episode that began."""
    critic: WeightsPublished | None = None
    """Newest published critic."""
    orm: WeightsPublished | None = None
    """The newest outcome reward model."""

    def valuing(self, model: str) -> WeightsPublished | None:
        """The version that values first states; `model`: as `evolution.valued_by` names it."""
        return self.orm if model == ORM else self.critic


@dataclass(slots=True)
class Phases:
    """The current phase. Only the curriculum's projection changes it."""

    decided: int = 0
    """Online episodes decided since it began. Those beyond a full phase are included, and count for the next one."""
    planned: bool = False
    """Whether it was full when the latest batch of the policy was planned."""
    over: bool = False
    """Whether the next phase may begin."""
    attempted: dict[str, AttemptedTask] = field(default_factory=dict)
    """Tasks decided in it, by id."""
    beyond: dict[str, AttemptedTask] = field(default_factory=dict)
    """Tasks decided since this phase was full, by id; they count for the next one."""
    seeds: list[Task] = field(default_factory=list)
    """Tasks that failed in the phase before."""
    ground: PhaseBasis = field(default_factory=PhaseBasis)
    """The basis when the phase began."""
    latest: PhaseBasis = field(default_factory=PhaseBasis)
    """The basis as of the last event."""
    candidates: list[str] = field(default_factory=list)
    """Ids of the tasks that were generated for it, in their order."""
    values: dict[str, float] = field(default_factory=dict)
    """Values of the candidates that were valued."""
    checked: dict[str, TaskChecked] = field(default_factory=dict)
    """A model's answers on the candidates that it was asked about."""
    generated: dict[str, Task] = field(default_factory=dict)
    """Every generated task by id, of all phases: the settings do not name them."""
    phase_of: dict[str, int] = field(default_factory=dict)
    """Phase for which each generated task was admitted."""
    asked: set[str] = field(default_factory=set)
    """Wording and meaning (`wording`, `goal_digest`) of all tasks ever proposed."""
    revisits: int = 0
    """Groups drawn from the tasks of earlier phases."""

    def judge(self, task: Task, reward: float, *, episodes: int) -> None:
        """Count a decided online episode of a task. `episodes`: how many fill a phase; 0: the run is one phase."""
        if not episodes:
            return
        self.decided += 1
        tasks_of_phase = self.attempted if self.decided <= episodes else self.beyond
        attempted = tasks_of_phase.setdefault(task.id, AttemptedTask(task))
        attempted.decided += 1
        attempted.reward += reward

    def plan(self, *, episodes: int) -> None:
        """Note that a batch of the policy was planned."""
        self.planned = 0 < episodes <= self.decided

    def publish(self) -> None:
        """Note that weights of the policy were published."""
        self.over = self.over or self.planned

    def begin(self, *, episodes: int) -> None:
        """Begin the next phase; surplus episodes of the phase before count for it."""
        self.seeds = [attempted.task for attempted in self.attempted.values() if attempted.failed]
        self.ground = PhaseBasis(
            pages=dict(self.latest.pages), critic=self.latest.critic, orm=self.latest.orm
        )
        self.decided, self.planned, self.over = max(0, self.decided - episodes), False, False
        self.attempted, self.beyond = self.beyond, {}
        self.candidates, self.values, self.checked = [], {}, {}

    def propose(self, fact: TaskProposed) -> None:
        """Add a proposed task."""
        self.asked |= {wording(fact.task), goal_digest(fact.task)}
        if fact.phase is not None and fact.task.id not in self.generated:
            self.generated[fact.task.id] = fact.task
            self.candidates.append(fact.task.id)


def wording(task: Task) -> str:
    """A task's instruction normalized for comparison: without case, extra spaces and the last punctuation mark."""
    return " ".join(task.instruction.casefold().split()).rstrip(".?! ")


def goal_digest(task: Task) -> str:
    """A digest of the task's goal, independent of its wording."""
    return digest_hex(msgspec.json.encode((task.environment, task.family, task.goal), order="sorted"))[:16]
