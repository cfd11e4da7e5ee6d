"""Advantage-weighted regression (arXiv 1910.00177): L = - mean over steps of exp(A/beta) log pi(a).

log pi is summed over the action's tokens. The weight is bounded as in the authors' code, so that one lucky step does not
drown the others.
"""

from collections.abc import Sequence
from math import exp, log

import torch

from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms
from hindcast.learner.algorithms.steps import step_loss, step_share, step_shares

LARGEST_WEIGHT = 20.0


class Awr:
    """The loss of advantage-weighted regression."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Algorithm.shares`."""
        return step_shares(episodes)

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Algorithm.sample_loss`."""
        weight = exp(min(log(LARGEST_WEIGHT), terms.advantage / self._settings.beta))
        loss = -step_share(terms) * weight * log_probs.sum()
        return step_loss(loss, log_probs, terms, contributes=True)
