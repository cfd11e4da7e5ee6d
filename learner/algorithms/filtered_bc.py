"""Filtered behaviour cloning: of every so many of the run's own episodes the best are imitated, once.

As in WebRL's baseline (arXiv 2411.02337, section 4.1): kept are episodes whose return reaches the 70th percentile. With
binary outcomes: successes, those with the best discounted return, so the shortest, first.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import Number, Share
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.learner.algorithms.cloning import Cloning
from hindcast.learner.buffer.groups import drop
from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, PolicyPlanner, as_fact, cut


class FilteredCloningOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of filtered behaviour cloning."""

    filter_episodes: Number = 64
    """Episodes of the run from which the best are taken, for one batch."""
    filter_percentile: Annotated[float, Meta(ge=0, le=100)] = 70.0
    """Percentile of the returns from which successes are imitated."""
    filter_discount: Share = 0.9
    """gamma of the returns: shorter successes have higher ones."""


class FilteredCloningPlanner(PolicyPlanner):
    """Plans the best of a window of episodes; failures stay until they were ranked with the others."""

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """The run's own episodes; demonstrations are for the cloning before."""
        return origin == ONLINE

    def groups_swept(
        self, state: BufferState, swept: set[str], settings: LearnerSettings
    ) -> dict[str, list[str]]:
        """`unsuccessful`: a whole window without a success."""
        window = [episode for episode in _window(state, settings) if episode.id not in swept]
        if len(window) < _options(settings).filter_episodes or any(episode.succeeded for episode in window):
            return {}
        return {"unsuccessful": [episode.id for episode in window]}

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The best of the first `filter_episodes` decided episodes, by the time of their verdict; the others are given up."""
        learner = settings.learner
        window = _window(state, learner)
        if len(window) < _options(learner).filter_episodes:
            return None
        selected = best_of(window, learner)
        if not selected:
            return None
        names = {episode.id for episode in selected}
        return as_fact(
            state,
            cut([[BatchEntry(episode, episode.group, 1.0)] for episode in selected], learner.minibatches)
            * learner.epochs,
            planner=self,
            consumed=[episode.id for episode in window if episode.id not in names],
        )

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """The whole window is done with."""
        for name in dict.fromkeys([*(planned.episode for planned in fact.episodes), *fact.consumed]):
            drop(state, state.episodes[name])


def best_of(window: list[Episode], settings: LearnerSettings) -> list[Episode]:
    """Successes whose discounted return gamma^(T-1) R reaches the percentile of all returns, best first.

    The percentile is the nearest rank: the smallest return that at least so many per cent of the episodes do not exceed.
    """
    returns = {episode.id: _discounted(episode, settings) for episode in window}
    ranked = sorted(returns.values())
    rank = -(-len(ranked) * _options(settings).filter_percentile // 100)
    bound = ranked[max(0, int(rank) - 1)]
    selected = [episode for episode in window if episode.succeeded and returns[episode.id] >= bound]
    return sorted(selected, key=lambda episode: (-returns[episode.id], episode.judged))


def _discounted(episode: Episode, settings: LearnerSettings) -> float:
    """0 where the judge called it a failure, whatever it got for it."""
    if not episode.succeeded:
        return 0.0
    return _options(settings).filter_discount ** max(0, episode.steps - 1) * episode.reward


def _window(state: BufferState, settings: LearnerSettings) -> list[Episode]:
    """The decided online episodes that were not used yet, the first `filter_episodes` by the time of their verdict."""
    decided = [
        episode
        for episode in state.episodes.values()
        if episode.origin == ONLINE and episode.decided and episode.samples
    ]
    return sorted(decided, key=lambda episode: episode.judged)[: _options(settings).filter_episodes]


def _options(settings: LearnerSettings) -> FilteredCloningOptions:
    return options_as(settings, FilteredCloningOptions)


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(useless_outcome="failure"),
    episodes_per_batch=lambda settings: (
        _options(settings.learner).filter_episodes + settings.curriculum.group_size
    ),
    planner=FilteredCloningPlanner,
    loss=Cloning,
    options=FilteredCloningOptions,
)
