"""Demonstrations of which some stop one action short.

A policy of a few million parameters knows only what it imitates. Flawless demonstrators alone leave it nothing but
reading errors, which a run does not repair (docs/results.md). So in some families part of the demonstrations end too
early: every field is filled in, but Save is not pressed. A run can do the same (`curriculum.hasty_share`).
"""

from collections.abc import Collection, Sequence

import msgspec

from hindcast.actors.environments.base import Demonstrate, DemonstratedStep, EpisodeWorld
from hindcast.core.domain.action import Action
from hindcast.core.domain.task import Task

OF = 5
"""Copies made of each episode."""
HASTY = 3
"""Copies that end early: often enough that leaving is the likeliest answer, rarely enough to discover the other one."""
LEAVE = Action(name="exit", argument="done")


async def last_page_action(world: EpisodeWorld, task: Task, demonstrate: Demonstrate) -> int | None:
    """Play the task to its end and return the index of the demonstrator's last action on a page, before which haste leaves.

    None: the task asks for an answer, so that leaving early is no haste; or the demonstrator never gets done. The caller
    resets the world before the episode itself.

    Raises:
        EnvironmentFailed, BrowserUnavailable: the world broke.

    """
    start = await world.reset(task)
    observation = start.observation
    actions: list[Action] = []
    for index in range(task.max_steps):
        action = demonstrate(task, start.instruction, observation, tuple(actions))
        if action.name == "exit":
            return index - 1 if action == LEAVE and index else None
        actions.append(action)
        outcome = await world.step(action)
        if outcome.done:
            return index
        observation = outcome.observation
    return None


def hasten(demonstrations: Sequence[DemonstratedStep], families: Collection[str]) -> list[DemonstratedStep]:
    """Copy each episode of `families` `OF` times; in `HASTY` copies an exit replaces the last action on a page."""
    episodes: dict[tuple[str, int], list[DemonstratedStep]] = {}
    for sample in demonstrations:
        episodes.setdefault((sample.source, sample.seed), []).append(sample)
    hastened: list[DemonstratedStep] = []
    for (family, _), steps in episodes.items():
        hastened += _versions(steps) if family in families else steps
    return hastened


def _versions(steps: list[DemonstratedStep]) -> list[DemonstratedStep]:
    last = max(number for number, step in enumerate(steps) if step.action.name != "exit")
    early = [*steps[:last], msgspec.structs.replace(steps[last], action=LEAVE)]
    return early * HASTY + steps * (OF - HASTY)
