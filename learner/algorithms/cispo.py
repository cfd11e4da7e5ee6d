"""CISPO, clipped importance-sampling-weight policy optimization (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5).

    L = -1/T sum over tokens of w sg[min(rho, 1+high)] A log pi        T: tokens of the mini-batch, sg: stop-gradient

The ratio rho = pi / pi_prox is a clipped, constant weight of REINFORCE's loss. So a clipped token keeps its gradient, whose
weight is bounded, whereas in GRPO it has none. A is GRPO's, w the off-policy correction (`core.rl.importance_weights`).
Eq. 5 has a lower bound, too, which the paper switches off and this code leaves out. The paper has no KL penalty, and does not
give its upper bound.
`learner.loss_mean` has no effect: the mean is over tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import NotNegative, Positive
from hindcast.core.rl.loss_normalization import EpisodeTokens, token_shares
from hindcast.learner.algorithms.base import SampleTerms
from hindcast.learner.algorithms.group_loss import (
    CHANGEABLE,
    GroupLoss,
    GroupLossOptions,
    Surrogate,
    check_groups,
)
from hindcast.learner.planners.groups import GroupPlanner, episodes_per_batch

if TYPE_CHECKING:
    import torch


class CispoOptions(GroupLossOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of CISPO."""

    clip_high: Positive = 4.0
    """Upper clip of the weight, which is at most 1 + `clip_high`. 4: weights up to 5, as in ScaleRL (arXiv 2510.13786);
    the paper does not give its value."""
    kl_coefficient: NotNegative = 0.0
    """Weight of the k3 estimate of KL to the reference policy; the paper has none."""


class Cispo(GroupLoss):
    """The loss of CISPO."""

    def mean(self, episodes: Sequence[EpisodeTokens]) -> list[float]:
        """See `GroupLoss.mean`: over all tokens."""
        return token_shares(episodes)

    def surrogate(self, log_probs: torch.Tensor, terms: SampleTerms) -> Surrogate:
        """See `GroupLoss.surrogate`: log pi with a constant weight, so that every token has a gradient."""
        import torch

        clip_high = options_as(self.settings, CispoOptions).clip_high
        ratio = torch.exp(self.log_ratio(log_probs, terms)).detach()
        weight = torch.clamp(ratio, max=1 + clip_high)
        values = weight * terms.advantage * log_probs
        return Surrogate(values, clipped=weight != ratio, learned=torch.ones_like(ratio, dtype=torch.bool))


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", group_advantages=True, limits_staleness=True),
    episodes_per_batch=episodes_per_batch,
    planner=GroupPlanner,
    loss=Cispo,
    options=CispoOptions,
    changeable=CHANGEABLE,
    check=check_groups,
)
