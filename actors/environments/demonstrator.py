"""Interface of scripted demonstrators: the next action of a person who knows the task.

They are pure functions of what a person could see (instruction and observation) and the task's goal. They serve
demonstrations at the start of a run, the training of the base policy, and tests that every task can be solved.
"""

from collections.abc import Callable, Sequence

import msgspec

from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.domain.task import Task

Demonstrate = Callable[[Task, str, Observation, Sequence[Action]], Action]
"""Task, instruction, observation, earlier actions -> next action."""


class DemonstratedStep(msgspec.Struct, frozen=True):
    """One demonstrated step: instruction, earlier answers and page, and the demonstrator's action."""

    instruction: str
    answers: tuple[str, ...]
    """Earlier answers, oldest first."""
    page: Page
    action: Action
    source: str
    """Group for breaking down measurements, such as `lookup/click` or `store/find_price`."""
    seed: int = 0
    """Seed of the demonstrated task; all steps of a demonstration share it."""
