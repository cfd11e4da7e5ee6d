"""What a training algorithm is to all of the system: its traits, its checks of settings, and how to make its two parts.

An algorithm is one plugin, an `Algorithm` object that `learner.algorithm` names. Curriculum, audit and settings ask its
traits, never its name. Its module imports torch inside the loss alone, so that they may ask without loading it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec

from hindcast.core.plugins import NoOptions, find_plugin, read_options
from hindcast.core.settings.schema import LearnerSettings, Settings

ALGORITHMS = "algorithms"
"""The kind of plugin."""
CLONING_BEFORE = "sft"
"""The algorithm that a run with `learner.cloning_updates` begins with."""
Comparison = Literal["none", "groups", "pairs"]
Outcome = Literal["", "success", "failure"]
OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)


class AlgorithmTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What others need to know of an algorithm."""

    compares: Comparison = "none"
    """`groups`: the members of a task's group with each other, so that a group is used up as a whole. `pairs`: planned in
    turns, a demonstration with advantage 1 and a failure at the same task with -1, so that only demonstrated tasks are
    attempted."""
    group_advantages: bool = False
    """Whether planned advantages are `core.rl.advantages.group_advantages` of a group's rewards; the audit computes them."""
    plays_episodes: bool = True
    """Whether the policy's own episodes are learned from; else demonstrations alone."""
    learns_in_phases: bool = False
    """Whether it learns in phases, with a critic that is trained before the policy."""
    learns_from_relabels: bool = False
    """Whether it learns from what a relabeler says that episodes achieved."""
    useless_outcome: Outcome = ""
    """Outcome of the policy's episodes that teaches it nothing."""
    limits_staleness: bool = False
    """Whether episodes from more than `learner.max_staleness` versions ago are given up."""
    reuses_episodes: bool = False
    """Whether an episode of the policy may be trained on in several batches."""
    learns_from_branches: bool = False
    """Whether it values steps by continuations from them, which the curriculum requests (`curriculum.branches`)."""
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
    options: type[msgspec.Struct] = NoOptions
    """What `learner.options` may hold."""
    changeable: frozenset[str] = frozenset()
    """Options that may change in a running run (`hindcast ctl set`): the learner alone reads them."""
    state_version: int = 1
    """To be raised when plans, updates or what batches use up come out otherwise, so that recorded runs cannot be recomputed."""
    check: Callable[[Settings], list[str]] = lambda settings: []
    """What does not go together when settings name this algorithm, one sentence each."""


def find_algorithm(name: str) -> Algorithm:
    """The algorithm that `learner.algorithm` or a plan names. Raises PluginError where there is none."""
    return find_plugin(ALGORITHMS, name, Algorithm)


def options_of(settings: LearnerSettings) -> Any:
    """`learner.options` as the algorithm's own struct. Raises SettingsError where they are not what it allows."""
    return _read_options(settings.algorithm, msgspec.json.encode(settings.options))


def options_as(settings: LearnerSettings, family: type[OptionsT]) -> OptionsT:
    """The algorithm's options as those of a family; the family's defaults if the algorithm is not one of it."""
    options = options_of(settings)
    return options if isinstance(options, family) else family()


def fill_options(settings: Settings) -> Settings:
    """The settings with every option of their algorithm, defaults included. Raises as `options_of`."""
    options = msgspec.json.decode(msgspec.json.encode(options_of(settings.learner)))
    learner = settings.learner.model_copy(update={"options": options})
    return settings.model_copy(update={"learner": learner})


@lru_cache(maxsize=256)
def _read_options(algorithm: str, options_json: bytes) -> Any:
    of = f"learner.options of learner.algorithm = {algorithm!r}"
    return read_options(find_algorithm(algorithm).options, msgspec.json.decode(options_json), of=of)


def traits_of(name: str) -> AlgorithmTraits:
    """The traits of an algorithm. Raises PluginError where there is none of this name."""
    return find_algorithm(name).traits
