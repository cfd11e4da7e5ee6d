"""Facts of the curriculum: tasks, phases and requested episodes."""

import msgspec

from hindcast.core.domain.task import Task
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.envelope import Fact
from hindcast.events.registry import fact
from hindcast.events.subjects import CURRICULUM, REQUEST


@fact("task.proposed", subject=CURRICULUM, roles="curriculum", version=3, refs={"parents": "task"})
class TaskProposed(Fact, frozen=True, kw_only=True):
    """A task was proposed to the curriculum."""

    task: Task
    source: str
    """Origin of the task: `seeded`, `generated`, `imported`."""
    parents: tuple[str, ...] = ()
    """Ids of the tasks from which it was derived."""
    phase: int | None = None
    """Phase for which it was generated; None if it was not generated."""
    generator: str = ""
    """Its generator: `embedded/1`, `endpoint/1 MODEL`."""
    change: str = ""
    """The generator's name for its difference from the parents."""
    prompt: str = ""
    """sha256 of the prompt, if a model generated it."""
    consulted: Consulted | None = None
    """The question to the endpoint; only with the first task of an answer, else None."""


@fact("task.checked", subject=CURRICULUM, roles="curriculum", refs={"task_id": "task"})
class TaskChecked(Fact, frozen=True, kw_only=True):
    """A model answered whether a generated task is feasible."""

    task_id: str
    feasible: bool | None
    """None if there is no clear answer, for the reason in `reason`."""
    reason: str
    checker: str
    """`endpoint/1 MODEL`: version of the prompt, and the requested model."""
    prompt: str
    """sha256 of the prompt."""
    consulted: Consulted


@fact("task.admitted", subject=CURRICULUM, roles="curriculum", refs={"task_id": "task"})
class TaskAdmitted(Fact, frozen=True, kw_only=True):
    """A proposed task may be attempted."""

    task_id: str
    phase: int
    value: float | None = None
    """Value of its first state, if a model filtered it."""


@fact("task.rejected", subject=CURRICULUM, roles="curriculum", refs={"task_id": "task"})
class TaskRejected(Fact, frozen=True, kw_only=True):
    """A proposed task will not be attempted."""

    task_id: str
    reason: str
    value: float | None = None


@fact("phase.started", subject=CURRICULUM, roles="curriculum", refs={"reference_version": "policy"})
class PhaseStarted(Fact, frozen=True, kw_only=True):
    """A new phase of the curriculum started; its policy becomes the KL reference if the recipe says so.

    A phase is full after `learner.phase_episodes` decided online episodes, and ends with the weights of the next batch.
    """

    phase: int
    reference_version: int
    """Policy version at the start of the phase."""


@fact("state.valued", subject=CURRICULUM, roles="curriculum", version=2, refs={"task_id": "task"})
class StateValued(Fact, frozen=True, kw_only=True):
    """A model valued the first state of a task."""

    task_id: str
    critic_version: int
    """Version of that model."""
    value: float
    model: str = "critic"
    """`critic`, or `orm`: then the value is P(YES) for an episode at its start."""


ONLINE = "online"
"""Origin of an episode that the run's own policy plays to be trained on."""
DEMONSTRATION = "demonstration"
"""Origin of an episode that a person or a scripted demonstrator plays."""
BRANCH = "branch"
"""Origin of an episode that continues another one from one of its steps."""
IMPORTED = "imported"
"""Origin of an episode of another system's run, whose policy versions are those of that run."""
NEVER_TRAINED = frozenset({"evaluation", BRANCH, IMPORTED})
"""Origins of episodes that only measure the policy."""


class BranchPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an episode leaves another one: its steps before are played again, and the policy continues."""

    episode: str
    """The other episode, of the same task."""
    step: int
    """Index of the first step that the policy answers itself."""
    after: int = 0
    """Position in the log before the other episode's steps; 0: not recorded, so they are looked for from the beginning."""


@fact(
    "episode.requested",
    subject=REQUEST,
    roles="curriculum",
    version=5,
    refs={"min_version": "policy", "branch.episode": "episode"},
)
class EpisodeRequested(Fact, frozen=True, kw_only=True):
    """The curriculum requested an episode. These events are the actors' work queue; invariant 2 begins here."""

    episode: str
    task: Task
    group: str
    """Episodes of one task that are compared with each other."""
    member: int
    """Index within the group."""
    group_size: int
    attempt: int
    """Number of earlier attempts of this member that were abandoned."""
    origin: str
    """`online`, `demonstration`, `evaluation`, `branch` or `imported`."""
    temperature: float
    phase: int
    revisits: bool = False
    """Whether its task is one of an earlier phase, against forgetting."""
    hasty: bool = False
    """Whether its demonstrator leaves instead of its last action on a page."""
    branch: BranchPoint | None = None
    """Where it leaves the episode that it continues; None: it begins with the task."""
    min_version: int
    """Least policy version that may play it."""
    lease_s: float
    """Time after its start after which an episode that has not ended is abandoned, in seconds."""
    request_lease_s: float = 0.0
    """Time after its request after which an episode that has not started is abandoned, in seconds; 0: `lease_s`."""
