"""Scripted solutions of the MiniWoB++ families, from what a person sees: instruction and page."""

from collections.abc import Callable, Sequence

from actors.environments.miniwob.solving import clicking, forms, mail, reasoning, scrolling, widgets
from actors.environments.miniwob.solving.reading import Solve
from core.action import Action
from core.observation import Observation
from core.task import Task

Demonstrate = Callable[[Task, str, Observation, Sequence[Action]], Action]


def _demonstrator(solve: Solve) -> Demonstrate:
    def demonstrate(
        task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]
    ) -> Action:
        return solve(instruction, observation.page, earlier)

    return demonstrate


DEMONSTRATORS: dict[tuple[str, str], Demonstrate] = {
    ("miniwob", family): _demonstrator(solve)
    for kind in (clicking, forms, widgets, scrolling, mail, reasoning)
    for family, solve in kind.SOLUTIONS.items()
}
"""By environment and family. A family without one is listed in docs/miniwob.md."""
