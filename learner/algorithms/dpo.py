"""Direct preference optimisation between whole episodes (Rafailov et al. 2023, arXiv 2305.18290; over episodes as in ETO,
arXiv 2403.02502): a demonstration is preferred to the agent's failure at the same task.

    L = -1/N sum_pairs log sigmoid(m),   m = beta [ log pi(w)/ref(w) - log pi(l)/ref(l) ]

log pi of an episode is the sum over all its action tokens, ref the policy after cloning. Samples share no computation, so
a pair's margin is taken first, without gradient, under the weights the update starts from; then dL = -1/N sum_pairs
beta sigmoid(-m) (d log pi(w) - d log pi(l)) is a sum over samples with constant coefficients, exactly.

Invariant: every failure stands in one batch at most; a demonstration stands in as many pairs as its task has failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from math import exp, fsum, log1p
from typing import TYPE_CHECKING

import msgspec

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import Number, Positive
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.curriculum import DEMONSTRATION, ONLINE
from hindcast.learner.algorithms.base import (
    CurrentLogProbs,
    EpisodePart,
    SampleLoss,
    SampleTerms,
    check_demonstrations,
)
from hindcast.learner.buffer.groups import drop
from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, PolicyPlanner, as_fact, cut, too_old, why_unusable

if TYPE_CHECKING:
    import torch

PREFERRED, OTHER = 1.0, -1.0
"""Planned advantages of a pair's two episodes."""


class DpoOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of DPO."""

    pair_batch: Number = 16
    """Pairs in one batch."""
    dpo_beta: Positive = 0.1
    """Strength of the KL constraint to the policy after cloning; larger values stay closer."""


class Dpo:
    """The loss of DPO. A mini-batch is pairs: the preferred episode, then the other (`PairPlanner`)."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._beta = options_as(settings, DpoOptions).dpo_beta

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`: log-probabilities are summed, pairs averaged."""
        shares = [2.0 / len(episodes) for episode in episodes for _ in episode.tokens.tokens]
        return shares, [0.0] * len(shares)

    def weigh(self, terms: Sequence[SampleTerms], current: CurrentLogProbs) -> list[SampleTerms]:
        """See `Weighing`: advantages become +-beta sigmoid(-m); each pair's loss stands in its first sample."""
        rises = [
            fsum(log_probs[term.first :].tolist()) - fsum(_reference(term))
            for term, log_probs in zip(terms, current([term.sample for term in terms]), strict=True)
        ]
        weighed: list[SampleTerms] = []
        for better, worse in _pairs(terms):
            margin = self._beta * (fsum(rises[i] for i in better) - fsum(rises[i] for i in worse))
            coefficient, loss = self._beta * _sigmoid(-margin), _softplus(-margin)
            for index in (*better, *worse):
                term = terms[index]
                weighed.append(
                    replace(
                        term,
                        advantage=coefficient * term.advantage,
                        constant=term.share * loss if index == better[0] else 0.0,
                    )
                )
        return weighed

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`; ratios are reported as 1, since none enters.

        The value of the loss is that of the pairs; through the sample goes its gradient alone.
        """
        log_prob = log_probs.sum()
        loss = terms.constant - terms.share * terms.advantage * (log_prob - log_prob.detach())
        surprisal = float(-log_prob.detach())
        return SampleLoss(
            loss=loss,
            policy=terms.constant,
            cloning=0.0,
            kl=0.0,
            surprisal=surprisal,
            ratio=float(len(log_probs)),
            clipped=0,
            contributing=len(log_probs),
        )


def _reference(term: SampleTerms) -> list[float]:
    assert term.reference is not None, "a plan of pairs names its reference"
    values: list[float] = term.reference.tolist()
    return values


def _pairs(terms: Sequence[SampleTerms]) -> Iterator[tuple[list[int], list[int]]]:
    """Indices of the samples of each pair's two episodes, in order: the sign of the advantage tells them apart."""
    runs = [
        list(run)
        for _, run in groupby(
            range(len(terms)), key=lambda index: (terms[index].sample.episode, terms[index].advantage)
        )
    ]
    for number, (better, worse) in enumerate(pairwise(runs)):
        if number % 2 == 0:
            yield better, worse


def _sigmoid(value: float) -> float:
    return 1 / (1 + exp(-value)) if value >= 0 else exp(value) / (1 + exp(value))


def _softplus(value: float) -> float:
    """log(1 + e^value) = -log sigmoid(-value)."""
    return max(value, 0.0) + log1p(exp(-abs(value)))


class PairPlanner(PolicyPlanner):
    """Plans pairs: a demonstration, then the agent's failure at the same task."""

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """Demonstrations to prefer, and the policy's own episodes to prefer them to."""
        return origin in (ONLINE, DEMONSTRATION)

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """`unsuccessful`: a demonstration that failed; `successful`: an episode that did not; `stale`: a failure of too old
        a policy; `unpaired`: a failure at a task that nobody demonstrated.
        """
        if episode.origin == DEMONSTRATION:
            return "unsuccessful" if episode.outcome == "failure" else why_unusable(state, episode)
        if too_old(state, episode, settings):
            return "stale"
        if episode.outcome == "success":
            return "successful"
        if episode.decided and episode.samples and not _demonstrations(state, episode.task):
            return "unpaired"
        return why_unusable(state, episode)

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The first `pair_batch` failures by the time of their verdict; of several demonstrations of a task one is drawn."""
        assert state.started is not None
        learner, seed = settings.learner, state.started.run_seed
        failures = [
            episode
            for episode in state.episodes.values()
            if episode.origin == ONLINE and episode.decided and not episode.succeeded and episode.samples
        ]
        failures.sort(key=lambda episode: episode.judged)
        pairs: list[list[BatchEntry]] = []
        for failure in failures:
            demonstrations = _demonstrations(state, failure.task)
            if not demonstrations:
                continue
            best = min(
                demonstrations,
                key=lambda demonstration: derive_seed(seed, "pair", failure.id, demonstration.id),
            )
            pairs.append([BatchEntry(best, best.group, PREFERRED), BatchEntry(failure, failure.group, OTHER)])
            if len(pairs) == options_as(learner, DpoOptions).pair_batch:
                parts = cut(pairs, min(learner.minibatches, len(pairs))) * learner.epochs
                return as_fact(state, parts, planner=self, reference_version=state.cloned_version)
        return None

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Failures are used once; demonstrations stay."""
        for name in dict.fromkeys(planned.episode for planned in fact.episodes if planned.advantage == OTHER):
            drop(state, state.episodes[name])

    def missing(self, state: BufferState, settings: Settings) -> str:
        """See `PolicyPlanner.missing`."""
        if state.shown < settings.curriculum.demonstrations or _may_get_demonstration(state):
            return ""
        return (
            f"a demonstration to prefer: all {state.shown} were played, and none that succeeded is left, or a fork's parent had "
            "given them up. Fork the run with more curriculum.demonstrations or other families"
        )


def _may_get_demonstration(state: BufferState) -> bool:
    """Whether a demonstration that may be preferred is there, or may still come of one under way."""
    return any(
        episode.origin == DEMONSTRATION
        and not episode.swept
        and episode.gone is None
        and episode.outcome in (None, "success")
        for episode in state.episodes.values()
    )


def _demonstrations(state: BufferState, task: str) -> list[Episode]:
    """Of a task, successful ones, in the order of their requests."""
    return [
        episode
        for episode in state.episodes.values()
        if episode.origin == DEMONSTRATION
        and episode.task == task
        and episode.decided
        and episode.succeeded
        and episode.samples
    ]


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="pairs", useless_outcome="success", limits_staleness=True),
    episodes_per_batch=lambda settings: (
        options_as(settings.learner, DpoOptions).pair_batch + settings.curriculum.group_size
    ),
    planner=PairPlanner,
    loss=Dpo,
    options=DpoOptions,
    changeable=frozenset({"dpo_beta"}),
    check=check_demonstrations,
)
