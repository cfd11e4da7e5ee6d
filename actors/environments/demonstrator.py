"""Scripted demonstrators of every environment: what a person who knows the task would do next.

Pure functions of what a person could see (instruction and observation) and the task's goal. Used for demonstrations
at the start of a run, for the base policy, and to test that every task can be solved.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from hindcast.actors.environments.miniwob.demonstrators import DEMONSTRATORS as MINIWOB
from hindcast.actors.environments.store.demonstrators import DEMONSTRATORS as STORE
from hindcast.actors.environments.webshop.demonstrators import DEMONSTRATORS as WEBSHOP
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.domain.task import Task

Demonstrate = Callable[[Task, str, Observation, Sequence[Action]], Action]
"""Task, instruction, observation, earlier actions -> next action."""

DEMONSTRATORS: Mapping[tuple[str, str], Demonstrate] = {**MINIWOB, **STORE, **WEBSHOP}
"""By environment and family."""


class DemonstratedStep(msgspec.Struct, frozen=True):
    """One demonstrated step: instruction, earlier answers and page, and the action that a demonstrator took."""

    instruction: str
    answers: tuple[str, ...]
    """Earlier answers, oldest first."""
    page: Page
    action: Action
    source: str
    """`lookup/click`, `store/find_price`: what measurements are broken down by."""
    seed: int = 0
    """Seed of the task that a demonstration carried out; its steps share it."""
