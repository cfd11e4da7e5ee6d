"""Scripted solutions of the MiniWoB++ families, from what a person sees: instruction and page."""

from collections.abc import Sequence

from hindcast.actors.environments.base import Demonstrate
from hindcast.actors.environments.miniwob.solvers import clicks, forms, long_pages, widgets
from hindcast.actors.environments.miniwob.solvers.page_queries import SOLUTIONS, Solve
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task


def _demonstrator(solve: Solve) -> Demonstrate:
    def demonstrate(
        task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]
    ) -> Action:
        return solve(instruction, observation.page, earlier)

    return demonstrate


MODULES = (clicks, forms, long_pages, widgets)
"""Modules of solutions; importing them fills `SOLUTIONS`."""
DEMONSTRATORS = {family: _demonstrator(solve) for family, solve in SOLUTIONS.items()}
"""Demonstrators by family. docs/miniwob.md lists the families without one."""
