"""The task families of the store, one struct each: how goals are drawn, phrased, checked, demonstrated and recognized."""

from collections.abc import Sequence

from hindcast.actors.environments.base import Demonstrate
from hindcast.actors.environments.store.families import account, cart, impossible, questions
from hindcast.actors.environments.store.families.base import (
    CheckResult,
    Goal,
    PageView,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task

FAMILIES: dict[str, StoreFamily] = {
    family.name: family
    for family in (*questions.FAMILIES, *cart.FAMILIES, *account.FAMILIES, *impossible.FAMILIES)
}
"""Every family by name, in a stable order."""


def _demonstrator(family: StoreFamily) -> Demonstrate:
    def demonstrate(
        task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]
    ) -> Action:
        return family.act(task.goal, PageView(observation), earlier)

    return demonstrate


DEMONSTRATORS = {name: _demonstrator(family) for name, family in FAMILIES.items()}
"""Family -> demonstrate(task, instruction, observation, earlier actions) -> next action."""

__all__ = ["DEMONSTRATORS", "FAMILIES", "CheckResult", "Goal", "ReachedGoal", "StoreFamily", "VisitEnd"]
