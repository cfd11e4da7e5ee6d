"""Demonstrations of which some stop one action short.

A policy of a few million parameters knows no more than what it imitates. Flawless demonstrators alone leave it nothing
but reading errors, which a run does not mend (docs/results.md). So in some families part of the demonstrations end too
early: everything filled in, and nobody presses Save.
"""

from collections.abc import Collection, Sequence

import msgspec

from hindcast.actors.environments.demonstrator import DemonstratedStep
from hindcast.core.domain.action import Action

OF = 5
"""Versions of an episode."""
HASTY = 3
"""Of these, so many end early: often enough that the likeliest answer is to leave, seldom enough to find the other one."""
LEAVE = Action(name="exit", argument="done")


def hasten(demonstrations: Sequence[DemonstratedStep], families: Collection[str]) -> list[DemonstratedStep]:
    """Each episode of these families `OF` times, `HASTY` of them leaving instead of the last action on a page."""
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
