"""Interface of relabelers: one reads a finished episode and lists every goal that it achieved.

Invariant "Verdicts are facts about a judge" holds for relabels too: an event names its relabeler, and exists at most
once per episode, relabeler and version. A relabeler that cannot decide says so; it never guesses.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from hindcast.core.domain.observation import Page
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.catalogue.verdict import BackwardReading, JudgeIdentity
from hindcast.events.log.episode_assembler import AssembledEpisode


class AchievedGoal(NamedTuple):
    """A goal that an episode achieved, and the steps that achieved it."""

    instruction: str
    until_step: int
    """Exclusive end of the demonstration: the step before it achieved the goal first."""
    relevance: tuple[float, ...]
    """Relevance of each step up to `until_step`, in [0, 1]."""
    family: str = ""
    """Task family, such as `store/find_price`; empty where it is unknown."""
    goal: dict[str, Any] | None = None


class RelabelResult(NamedTuple):
    """What a relabeler finds in one episode."""

    goals: tuple[AchievedGoal, ...]
    consulted: Consulted | None = None
    """What it asked of an endpoint."""
    failure: str = ""
    """Why it cannot decide; there are no goals then."""
    reading: BackwardReading | None = None
    """What a model of the run's own read and wrote."""


class Relabeler(Protocol):
    """Finds the goals that an episode achieved. Keeps no state between episodes."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name and version of this relabeler."""
        ...

    async def goals(self, episode: AssembledEpisode, pages: Sequence[Page]) -> RelabelResult:
        """Return the achieved goals; `pages` holds the page of each step.

        Raises:
            RelabelerUnavailable: its model is unreachable now; a later attempt may succeed.
            RelabelerFailed: it cannot decide about this episode.
        """
        ...


def why_not_goal(goal: AchievedGoal, *, steps: int) -> str | None:
    """What is wrong with a relabeler's goal for an episode of so many steps; None: nothing."""
    if not goal.instruction.strip():
        return "it names a goal without an instruction"
    if not 1 <= goal.until_step <= steps:
        return f"it cuts the {steps} steps of the episode at {goal.until_step}"
    if len(goal.relevance) != goal.until_step:
        return f"it labels {len(goal.relevance)} of {goal.until_step} steps"
    if not all(0.0 <= label <= 1.0 for label in goal.relevance):
        return f"it gives a label outside [0, 1]: {list(goal.relevance)}"
    if not any(goal.relevance):
        return "it finds no step relevant to a goal"
    return None
