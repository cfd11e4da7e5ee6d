"""What a training algorithm is to all of the system: its traits, its checks of settings, and how to make its two parts.

An algorithm is one plugin, an `Algorithm` object that `learner.algorithm` names. Curriculum, audit and settings ask its
traits, never its name. Its module imports torch inside the loss alone, so that they may ask without loading it.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Literal

import msgspec

from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.core.text.nearest import advice

Comparison = Literal["none", "groups", "pairs"]
Outcome = Literal["", "success", "failure"]


class AlgorithmTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What others need to know of an algorithm."""

    compares: Comparison = "none"
    """`groups`: the members of a task's group with each other, so that a group is used up as a whole. `pairs`: planned in
    turns, a demonstration with advantage 1 and a failure at the same task with -1, so that only demonstrated tasks are
    attempted."""
    group_advantages: bool = False
    """Whether planned advantages are `core.rl.advantages.group_advantages` of a group's rewards; the audit computes them."""
    plays: bool = True
    """Whether the policy's own episodes are learned from; else demonstrations alone."""
    phases: bool = False
    """Whether it learns in phases, with a critic that is trained before the policy."""
    relabels: bool = False
    """Whether it learns from what a relabeler says that episodes achieved."""
    useless: Outcome = ""
    """Outcome of the policy's episodes that teaches it nothing."""
    ages: bool = False
    """Whether episodes from more than `learner.max_staleness` versions ago are given up."""
    reuses: bool = False
    """Whether an episode of the policy may be trained on in several batches."""
    sets_reference: bool = False
    """Whether the policy that it leads to is the KL reference of what follows, as the cloning at a run's beginning is."""


class Algorithm(msgspec.Struct, frozen=True, kw_only=True):
    """One way to train the policy."""

    traits: AlgorithmTraits
    episodes_per_batch: Callable[[Settings], int]
    """Episodes that one batch takes at most: the curriculum admits by it."""
    planner: Callable[[str], object]
    """From the algorithm's name to its `learner.planners.base.PolicyPlanner`."""
    loss: Callable[[LearnerSettings], object]
    """From settings to its `learner.algorithms.base.Loss`."""
    check: Callable[[Settings], list[str]] = lambda settings: []
    """What does not go together when settings name this algorithm, one sentence each."""


BUILT_IN = {
    name: f"hindcast.learner.algorithms.{name}:ALGORITHM"
    for name in (
        "grpo",
        "cloning",
        "sft",
        "filtered_bc",
        "self_imitation",
        "dpo",
        "webrl",
        "reinforce",
        "awr",
        "digirl",
        "hsl",
    )
}


@cache
def find_algorithm(name: str) -> Algorithm:
    """The algorithm that `learner.algorithm` or a plan names. Raises SettingsError where there is none."""
    if name not in BUILT_IN:
        raise SettingsError(f"learner.algorithm = {name!r} is no algorithm; {advice(name, BUILT_IN)}")
    module, _, attribute = BUILT_IN[name].partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Algorithm)
    return found


def traits_of(name: str) -> AlgorithmTraits:
    """The traits of an algorithm. Raises SettingsError where there is none of this name."""
    return find_algorithm(name).traits
