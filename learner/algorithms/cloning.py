"""Behaviour cloning: cross-entropy on the actions of demonstrations and of episodes that succeeded.

    L = -1/N sum_j 1/|a_j| sum_t log pi(a_jt)

over the batch's steps; `loss_mean = "token"` takes one mean over all tokens. With the run's own successes among the
episodes this is filtered behaviour cloning. No off-policy correction: what is imitated is old by design.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits
from hindcast.core.rl.loss_normalization import EpisodeTokens, loss_shares
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.curriculum import DEMONSTRATION, ONLINE
from hindcast.learner.algorithms.base import (
    EpisodePart,
    SampleLoss,
    SampleTerms,
    cloning_episodes_per_batch,
)
from hindcast.learner.planners.cloning import CloningPlanner

if TYPE_CHECKING:
    import torch


class Cloning:
    """The loss of behaviour cloning."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`: every step counts alike, however long its episode; there is no term beside."""
        steps = [EpisodeTokens("", (tokens,)) for episode in episodes for tokens in episode.tokens.tokens]
        shares = loss_shares(self._settings.loss_mean, steps)
        return shares, [0.0] * len(shares)

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`; ratios are reported as 1, since none enters."""
        loss = -terms.share * log_probs.sum()
        surprisal = float(-log_probs.detach().sum())
        return SampleLoss(
            loss=loss,
            policy=0.0,
            cloning=terms.share * surprisal,
            kl=0.0,
            surprisal=surprisal,
            ratio=float(len(log_probs)),
            clipped=0,
            contributing=len(log_probs),
        )


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(useless_outcome="failure", reuses_episodes=True, sets_reference=True),
    episodes_per_batch=cloning_episodes_per_batch,
    planner=partial(CloningPlanner, origins=frozenset({DEMONSTRATION, ONLINE})),
    loss=Cloning,
)
