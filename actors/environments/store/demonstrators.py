"""Scripted demonstrators of the store: the next action of a person who knows the shop."""

from collections.abc import Sequence

from hindcast.actors.environments.demonstrator import Demonstrate
from hindcast.actors.environments.store.families import FAMILIES, StoreFamily
from hindcast.actors.environments.store.families.view import PageView
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task


def _demonstrator(family: StoreFamily) -> Demonstrate:
    def demonstrate(
        task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]
    ) -> Action:
        return family.act(task.goal, PageView(observation), earlier)

    return demonstrate


DEMONSTRATORS = {name: _demonstrator(family) for name, family in FAMILIES.items()}
"""Family -> demonstrate(task, instruction, observation, earlier actions) -> next action."""
