"""Demonstrations of which some stop one action short.

A policy of a few million parameters knows only what it imitates. Flawless demonstrators alone leave it nothing but
reading errors, which a run does not repair (docs/results.md). So in some families part of the demonstrations end too
early: every field is filled in, but Save is not pressed.
"""

from collections.abc import Collection, Sequence

import msgspec

from hindcast.actors.environments.base import DemonstratedStep
from hindcast.core.domain.action import Action

OF = 5
"""Copies made of each episode."""
HASTY = 3
"""Copies that end early: often enough that leaving is the likeliest answer, rarely enough to discover the other one."""
LEAVE = Action(name="exit", argument="done")


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
