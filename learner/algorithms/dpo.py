"""Direct preference optimisation between whole episodes (Rafailov et al. 2023, arXiv 2305.18290; over episodes as in ETO,
arXiv 2403.02502): a demonstration is preferred to the agent's failure at the same task.

    L = -1/N sum_pairs log sigmoid(m),   m = beta [ log pi(w)/ref(w) - log pi(l)/ref(l) ]

log pi of an episode is the sum over all its action tokens, ref the policy after cloning. Samples share no computation, so
a pair's margin is taken first, without gradient, under the weights the update starts from; then dL = -1/N sum_pairs
beta sigmoid(-m) (d log pi(w) - d log pi(l)) is a sum over samples with constant coefficients, exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from math import exp, fsum, log1p

import torch

from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.algorithms.base import CurrentLogProbs, EpisodePart, SampleLoss, SampleTerms


class Dpo:
    """The loss of DPO. A mini-batch is pairs: the preferred episode, then the other (`learner.planners.pairs`)."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._beta = settings.dpo_beta

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Algorithm.shares`: log-probabilities are summed, pairs averaged."""
        shares = [2.0 / len(episodes) for episode in episodes for _ in episode.tokens.tokens]
        return shares, [0.0] * len(shares)

    def weigh(self, terms: Sequence[SampleTerms], current: CurrentLogProbs) -> list[SampleTerms]:
        """See `Weighing`: advantages become +-beta sigmoid(-m); each pair's loss stands in its first sample."""
        rises = [
            fsum(now[term.first :].tolist()) - fsum(_reference(term))
            for term, now in zip(terms, current([term.sample for term in terms]), strict=True)
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
        """See `Algorithm.sample_loss`; ratios are reported as 1, since none enters.

        The value of the loss is that of the pairs; through the sample goes its gradient alone.
        """
        whole = log_probs.sum()
        loss = terms.constant - terms.share * terms.advantage * (whole - whole.detach())
        surprisal = float(-whole.detach())
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
