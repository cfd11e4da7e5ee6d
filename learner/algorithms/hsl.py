"""Hindsight supervised learning: imitate what relabelled episodes did for the goals that they achieved.

    L = lambda L_relabelled + (1 - lambda) L_given,    each the mean over its demonstrations of
    1/T sum_t -z_t log pi(a_t | history, I')

z_t is an action's relevance to the goal I', 1 throughout in a given demonstration; T counts all actions of one, relevant or
not. log pi(a_t) is the mean over the action's tokens, or their sum (the option `hsl_tokens`). With `hsl_weighting = "factor"`
a relabelled demonstration also counts by its weight over the mean weight of those beside it. No off-policy correction.

A batch is due whenever `hsl_episodes` episodes were collected; they are used up by it. Its relabelled demonstrations are
drawn from the memory of the latest, by weight or uniformly, its given ones uniformly; nothing drawn leaves the memory.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Literal

import msgspec

from hindcast.core.rl.advantages import demonstration_weight, drawn
from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import NotNegative, Number, Share
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.curriculum import DEMONSTRATION, ONLINE
from hindcast.learner.algorithms.base import EpisodePart
from hindcast.learner.algorithms.cloning import Cloning
from hindcast.learner.buffer.groups import drop
from hindcast.learner.buffer.records import Episode, RelabelledDemonstration
from hindcast.learner.buffer.relabels import collected
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, PolicyPlanner, as_fact, why_unusable


class HslOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of hindsight supervised learning."""

    hsl_episodes: Number = 18
    """Episodes collected for each update, all judged and relabeled."""
    hsl_memory: Number = 100
    """Latest relabeled demonstrations stored."""
    hsl_batch: Number = 16
    """Demonstrations drawn for an update, of each kind: relabeled and original."""
    hsl_weighting: Literal["sampling", "factor", "uniform"] = "sampling"
    """Use of a relabeled demonstration's weight (n/T)^alpha n, with n relevant of T actions: `sampling`: for the draw;
    `factor`: as a factor of its loss; `uniform`: none (the paper's ablation)."""
    hsl_alpha: NotNegative = 0.8
    """Exponent of that weight."""
    hsl_mixture: Share = 0.3
    """lambda: share of relabeled demonstrations in the loss; the rest is that of original ones."""
    hsl_tokens: Literal["mean", "sum"] = "mean"
    """Log-probability of an action: mean or sum over its tokens."""
    hsl_mask: bool = True
    """Whether actions irrelevant to the goal are masked out; false: the paper's ablation."""
    hsl_ends: Literal["as_played", "with_stop"] = "as_played"
    """Last step of a relabeled demonstration: `as_played`: the one that achieved its goal; `with_stop`: one more, which stops as
    a demonstrator would, where the episode has a later page and no answer achieved the goal."""
    hsl_failures_only: bool = False
    """Whether only relabeled episodes that failed at their instruction are learned from (the paper's ablation)."""


class Hsl(Cloning):
    """The loss of hindsight supervised learning: cloning's, with shares of its own."""

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`."""
        relabelled = sum(episode.step_weights is not None for episode in episodes)
        demonstrated = len(episodes) - relabelled
        options = _options(self._settings)
        mixture = options.hsl_mixture
        shares: list[float] = []
        for episode in episodes:
            tokens = episode.tokens.tokens
            weights = episode.step_weights
            episode_share = (1.0 - mixture) / demonstrated if weights is None else mixture / relabelled
            for count, weight in zip(tokens, weights or (1.0,) * len(tokens), strict=True):
                divisor = len(tokens) * (count if options.hsl_tokens == "mean" else 1)
                shares.append(episode_share * weight / divisor)
        return shares, [0.0] * len(shares)


class HindsightPlanner(PolicyPlanner):
    """Plans relabelled demonstrations of the run's own episodes, and given ones."""

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """What is relabelled, and what is demonstrated."""
        return origin in (ONLINE, DEMONSTRATION)

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """`unsuccessful`: a demonstration of nothing. An episode of the run's own may fail: it waits for its relabels, unless
        none can come (`unrelabelled`).
        """
        if episode.origin == ONLINE:
            if episode.unrelabelled:
                return "unrelabelled"
            return "undecided" if episode.outcome == "undecided" else None
        return "unsuccessful" if episode.outcome == "failure" else why_unusable(state, episode)

    def groups_swept(
        self, state: BufferState, swept: set[str], settings: LearnerSettings
    ) -> dict[str, list[str]]:
        """`unachieved`: a batch of episodes is due, and there is nothing to make it of."""
        due = _due(state, settings)
        if due and not _memory(state, settings) and not _drawable_demonstrations(state, settings):
            return {"unachieved": [episode.id for episode in due]}
        return {}

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """One update's batch."""
        assert state.started is not None
        learner = settings.learner
        due, memory, demonstrations = (
            _due(state, learner),
            _memory(state, learner),
            _drawable_demonstrations(state, learner),
        )
        if not due or not (memory or demonstrations):
            return None
        seed = derive_seed(state.started.run_seed, "hsl", state.batches)
        entries = [
            *_relabelled(memory, learner, Random(seed)),
            *_demonstrated(demonstrations, learner, Random(seed)),
        ]
        return as_fact(state, [entries], planner=self, consumed=[episode.id for episode in due])

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """The episodes that were collected for it; what they achieved stays, as long as it is among the latest."""
        for name in fact.consumed:
            if name in state.episodes:
                drop(state, state.episodes[name])
        del state.hindsight[: -_options(state.settings.learner).hsl_memory]


def _due(state: BufferState, learner: LearnerSettings) -> list[Episode]:
    """The episodes that the next batch uses up; none while there are too few."""
    episodes, count = collected(state), _options(learner).hsl_episodes
    return episodes[:count] if len(episodes) >= count else []


def _memory(state: BufferState, learner: LearnerSettings) -> list[RelabelledDemonstration]:
    """What may be drawn: with `hsl_failures_only` nothing of an episode that did what it was asked."""
    options = _options(learner)
    latest = state.hindsight[-options.hsl_memory :]
    return [
        demonstration
        for demonstration in latest
        if not (options.hsl_failures_only and demonstration.episode.succeeded)
    ]


def _drawable_demonstrations(state: BufferState, learner: LearnerSettings) -> list[Episode]:
    """Demonstrations that may be drawn: none where the relabelled ones have all of the loss."""
    if _options(learner).hsl_mixture == 1.0:
        return []
    return [
        episode
        for episode in state.episodes.values()
        if episode.origin == DEMONSTRATION and episode.decided and episode.succeeded and episode.samples
    ]


def _relabelled(
    memory: Sequence[RelabelledDemonstration], learner: LearnerSettings, random: Random
) -> list[BatchEntry]:
    options = _options(learner)
    if options.hsl_ends == "with_stop":
        memory = [_stopped(demonstration) for demonstration in memory]
    weights = [
        demonstration_weight(demonstration.relevance, alpha=options.hsl_alpha) for demonstration in memory
    ]
    by_weight = options.hsl_weighting == "sampling"
    indices = drawn(weights if by_weight else [1.0] * len(memory), options.hsl_batch, random)
    total = sum(weights[index] for index in indices)
    entries = []
    for index in indices:
        demonstration = memory[index]
        labels = demonstration.relevance if options.hsl_mask else (1.0,) * len(demonstration.relevance)
        factor = weights[index] * len(indices) / total if options.hsl_weighting == "factor" else 1.0
        # rounded, so that a library's last bit cannot make another plan of it
        steps = tuple(round(factor * label, 6) for label in labels)
        entries.append(
            BatchEntry(
                demonstration.episode,
                demonstration.episode.group,
                0.0,
                relabel=demonstration.relabel,
                step_weights=steps,
            )
        )
    return entries


def _stopped(demonstration: RelabelledDemonstration) -> RelabelledDemonstration:
    """A demonstration with the step that stops it, which is relevant; unchanged if it has none."""
    if demonstration.stop is None:
        return demonstration
    episode = replace(demonstration.episode, samples=demonstration.with_stop)
    return replace(demonstration, episode=episode, relevance=(*demonstration.relevance, 1.0), stop=None)


def _demonstrated(
    demonstrations: Sequence[Episode], learner: LearnerSettings, random: Random
) -> list[BatchEntry]:
    return [
        BatchEntry(demonstrations[index], demonstrations[index].group, 1.0)
        for index in drawn([1.0] * len(demonstrations), _options(learner).hsl_batch, random)
    ]


def _options(settings: LearnerSettings) -> HslOptions:
    return options_as(settings, HslOptions)


def check(settings: Settings) -> list[str]:
    """Hindsight needs relabels, and prompts that can be written anew."""
    scaffold, problems = settings.scaffold, []
    if not settings.relabeler.kind:
        problems.append(
            "relabeler.kind is empty, and learner.algorithm = 'hsl' learns from nothing but relabelled episodes: set it to rules, endpoint or learned"
        )
    if scaffold.states and scaffold.shown != "nothing":
        problems.append(
            f"scaffold.shown = {scaffold.shown!r} puts a heading over pages, and learner.algorithm = 'hsl' learns from prompts "
            "that are written anew without one: nothing would be relabelled. Set scaffold.shown to nothing"
        )
    return problems


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(learns_from_relabels=True, reuses_episodes=True, sets_reference=True),
    episodes_per_batch=lambda settings: (
        _options(settings.learner).hsl_episodes + settings.curriculum.group_size
    ),
    planner=HindsightPlanner,
    loss=Hsl,
    options=HslOptions,
    check=check,
)
