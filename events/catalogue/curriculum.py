"""Facts about what is attempted, and why."""

from core.task import Task
from events.envelope import Fact
from events.registry import fact


@fact("task.proposed", family="curriculum")
class TaskProposed(Fact, frozen=True, kw_only=True):
    """A task came into consideration."""

    task: Task
    source: str
    """Where it came from: `seeded`, `generated`, `imported`."""
    parents: tuple[str, ...] = ()
    """Ids of tasks it was derived from."""


@fact("task.admitted", family="curriculum")
class TaskAdmitted(Fact, frozen=True, kw_only=True):
    """A proposed task may be attempted."""

    task_id: str
    phase: int
    value: float | None = None
    """Critic's value of its first state, where a critic filtered it."""


@fact("task.rejected", family="curriculum")
class TaskRejected(Fact, frozen=True, kw_only=True):
    """A proposed task will not be attempted."""

    task_id: str
    reason: str
    value: float | None = None


@fact("phase.started", family="curriculum")
class PhaseStarted(Fact, frozen=True, kw_only=True):
    """A new phase of the curriculum; its policy becomes the KL reference where the recipe says so."""

    phase: int
    reference_version: int


@fact("state.valued", family="curriculum")
class StateValued(Fact, frozen=True, kw_only=True):
    """A critic's estimate of a first state."""

    task_id: str
    critic_version: int
    value: float


@fact("episode.requested", family="request")
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
    min_version: int
    """The policy must be at least this version."""
    lease_s: float
    """An episode that has not ended this long after its start, or its request, is abandoned."""
