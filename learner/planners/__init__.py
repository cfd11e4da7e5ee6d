"""Who plans a batch: the planner of the policy's algorithm, or of a model beside the policy.

A run may begin with cloning (`learner.cloning_updates`): until then demonstrations are imitated, whatever the algorithm.
Models beside the policy have planners of their own, asked before the policy's.
"""

from collections.abc import Iterator
from functools import cache

from hindcast.core.rl.algorithm import CLONING_BEFORE, find_algorithm
from hindcast.core.rl.combined_state import CRITIC, ORM, RELABELER
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import Planner, PolicyPlanner, clones_before
from hindcast.learner.planners.phases import CriticPhasePlanner
from hindcast.learner.planners.relabeler import RelabelerPlanner
from hindcast.learner.planners.reward_model import RewardModelPlanner

BESIDE: dict[str, Planner] = {
    CRITIC: CriticPhasePlanner(),
    ORM: RewardModelPlanner(),
    RELABELER: RelabelerPlanner(),
}
"""Of the models beside the policy, by name; each says itself when a batch is due."""


@cache
def policy_planner(algorithm: str) -> PolicyPlanner:
    """The planner of an algorithm. Raises PluginError where there is none of this name."""
    found = find_algorithm(algorithm).planner(algorithm)
    assert isinstance(found, PolicyPlanner)
    return found


def planner_due(state: BufferState, settings: LearnerSettings) -> PolicyPlanner:
    """Whose turn it is to train the policy."""
    return policy_planner(CLONING_BEFORE if clones_before(state, settings) else settings.algorithm)


def planners_due(state: BufferState, settings: LearnerSettings) -> Iterator[Planner]:
    """Who may plan the next batch, in the order in which they are asked."""
    yield from BESIDE.values()
    yield planner_due(state, settings)


def planner_of(algorithm: str) -> Planner:
    """Who made a plan of this name."""
    return BESIDE.get(algorithm) or policy_planner(algorithm)


def wanted(origin: str, settings: LearnerSettings) -> bool:
    """Whether episodes of this origin may ever be trained on under these settings."""
    first = settings.cloning_updates > 0 and policy_planner(CLONING_BEFORE).wants(origin, settings)
    return first or policy_planner(settings.algorithm).wants(origin, settings)


__all__ = [
    "BESIDE",
    "Planner",
    "clones_before",
    "planner_due",
    "planner_of",
    "planners_due",
    "policy_planner",
    "wanted",
]
