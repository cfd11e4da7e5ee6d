"""Planners by the name that `learner.algorithm` and `batch.planned.algorithm` know them by, and whose turn it is.

A run may begin with cloning (`learner.cloning_updates`): until then demonstrations are imitated, whatever the algorithm.
Models beside the policy have planners of their own, asked before the policy's.
"""

from collections.abc import Iterator

from hindcast.core.rl.combined_state import CRITIC, ORM, RELABELER
from hindcast.core.rl.replay_filter import PHASED
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.buffer.records import DEMONSTRATION
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import Planner, clones_before
from hindcast.learner.planners.cloning import CloningPlanner
from hindcast.learner.planners.filtered_cloning import FilteredCloningPlanner
from hindcast.learner.planners.groups import GroupPlanner
from hindcast.learner.planners.hsl import HindsightPlanner
from hindcast.learner.planners.pairs import PairPlanner
from hindcast.learner.planners.phases import CriticPhasePlanner, PhasePlanner
from hindcast.learner.planners.relabeler import RelabelerPlanner
from hindcast.learner.planners.reward_model import RewardModelPlanner
from hindcast.learner.planners.successes import SuccessPlanner

BEFORE = CloningPlanner("sft", origins=frozenset({DEMONSTRATION}))
"""What a run with `learner.cloning_updates` begins with."""
_OF_POLICY: tuple[Planner, ...] = (
    GroupPlanner(),
    HindsightPlanner(),
    CloningPlanner("cloning", origins=frozenset({DEMONSTRATION, "online"})),
    BEFORE,
    FilteredCloningPlanner(),
    SuccessPlanner(),
    PairPlanner(),
    *(PhasePlanner(name) for name in sorted(PHASED)),
)
PLANNERS = {one.name: one for one in _OF_POLICY}
"""Of the policy, by algorithm."""
BESIDE: dict[str, Planner] = {
    CRITIC: CriticPhasePlanner(),
    ORM: RewardModelPlanner(),
    RELABELER: RelabelerPlanner(),
}
"""Of the models beside the policy, by name; each says itself when a batch is due."""


def planner_due(state: BufferState, settings: LearnerSettings) -> Planner:
    """Whose turn it is to train the policy."""
    return BEFORE if clones_before(state, settings) else PLANNERS[settings.algorithm]


def planners_due(state: BufferState, settings: LearnerSettings) -> Iterator[Planner]:
    """Who may plan the next batch, in the order in which they are asked."""
    yield from BESIDE.values()
    yield planner_due(state, settings)


def planner_of(algorithm: str) -> Planner:
    """Who made a plan of this name."""
    return (PLANNERS | BESIDE)[algorithm]


def wanted(origin: str, settings: LearnerSettings) -> bool:
    """Whether episodes of this origin may ever be trained on under these settings."""
    first = settings.cloning_updates > 0 and BEFORE.wants(origin, settings)
    return first or PLANNERS[settings.algorithm].wants(origin, settings)


__all__ = [
    "BESIDE",
    "PLANNERS",
    "Planner",
    "clones_before",
    "planner_due",
    "planner_of",
    "planners_due",
    "wanted",
]
