"""REINFORCE on whole actions: L = - mean over steps of A log pi(a), log pi summed over the action's tokens.

With advantages from a critic it is WebRL without its KL constraint (the paper's ablation: the value as a baseline; beta = 0
would have no gradient at all). With DigiRL's two filters, whose advantages are 1 and 0, it is DigiRL
(arXiv 2406.11896): cloning of the steps that pass both.
"""

from collections.abc import Sequence

import torch

from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms
from hindcast.learner.algorithms.steps import step_loss, step_share, step_shares


class Reinforce:
    """The loss of REINFORCE and of DigiRL."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Algorithm.shares`."""
        return step_shares(episodes)

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Algorithm.sample_loss`."""
        loss = -step_share(terms) * terms.advantage * log_probs.sum()
        return step_loss(loss, log_probs, terms, contributes=terms.advantage != 0)
