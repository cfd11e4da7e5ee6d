"""Facts about what is attempted, and why."""

from hindcast.core.domain.task import Task
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.envelope import Fact
from hindcast.events.registry import fact


@fact("task.proposed", family="curriculum", version=3)
class TaskProposed(Fact, frozen=True, kw_only=True):
    """A task came into consideration."""

    task: Task
    source: str
    """Where it came from: `seeded`, `generated`, `imported`."""
    parents: tuple[str, ...] = ()
    """Ids of tasks it was derived from."""
    phase: int | None = None
    """For which it was generated; None: it was not."""
    generator: str = ""
    """What generated it: `embedded/1`, `endpoint/1 MODEL`."""
    change: str = ""
    """How it differs from its parents, in the generator's word."""
    prompt: str = ""
    """sha256 of the text that asked for it, where a model generated it."""
    consulted: Consulted | None = None
    """What asking for it cost; with the first task of an answer, None with the others."""


@fact("task.checked", family="curriculum")
class TaskChecked(Fact, frozen=True, kw_only=True):
    """A model was asked whether a generated task can be done."""

    task_id: str
    feasible: bool | None
    """None: it could not be asked, or would not say; `reason` has why."""
    reason: str
    checker: str
    """`endpoint/1 MODEL`: the prompt's version and the model that was asked for."""
    prompt: str
    """sha256 of the text that asked."""
    consulted: Consulted


@fact("task.admitted", family="curriculum")
class TaskAdmitted(Fact, frozen=True, kw_only=True):
    """A proposed task may be attempted."""

    task_id: str
    phase: int
    value: float | None = None
    """Value of its first state, where a model filtered it."""


@fact("task.rejected", family="curriculum")
class TaskRejected(Fact, frozen=True, kw_only=True):
    """A proposed task will not be attempted."""

    task_id: str
    reason: str
    value: float | None = None


@fact("phase.started", family="curriculum")
class PhaseStarted(Fact, frozen=True, kw_only=True):
    """A new phase of the curriculum; its policy becomes the KL reference where the recipe says so.

    A phase is full after `learner.phase_episodes` decided online episodes, and over with the weights of the next batch.
    """

    phase: int
    reference_version: int


@fact("state.valued", family="curriculum", version=2)
class StateValued(Fact, frozen=True, kw_only=True):
    """A model's estimate of a first state."""

    task_id: str
    critic_version: int
    """Of the model that valued it."""
    value: float
    model: str = "critic"
    """`critic`, or `orm`: then it is P(YES) of an episode that has only begun."""


@fact("episode.requested", family="request", version=2)
class EpisodeRequested(Fact, frozen=True, kw_only=True):
    """An episode is wanted. Work queue of the actors; invariant 2 begins here."""

    episode: str
    task: Task
    group: str
    """Episodes of one task that are compared with each other."""
    member: int
    """Index within the group."""
    group_size: int
    attempt: int
    """0, or how many earlier tries of this member were abandoned."""
    origin: str
    """`online`, `demonstration` or `evaluation`."""
    temperature: float
    phase: int
    revisits: bool = False
    """Whether its task was drawn from those of earlier phases, so that they are not forgotten."""
    min_version: int
    """The policy must be at least this version."""
    lease_s: float
    """An episode that has not ended this long after its start, or its request, is abandoned."""
