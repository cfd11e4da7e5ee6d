"""M-GRPO, multi-turn group-relative policy optimisation (WebAgent-R1, arXiv 2505.16421, eq. 4).

    L = -1/G sum_i 1/|tau_i| sum_j 1/|a_ij| sum_t [ w min(rho A, clip(rho, 1-low, 1+high) A) - beta KL ]

rho = pi / pi_prox with pi_prox at the start of the batch, A from the rewards of the group, w the off-policy correction
(`core.rl.importance_weights`), KL the k3 estimate to the policy that RL started from. `loss_mean = "token"` takes one mean over
all tokens instead of the three nested ones, as the released code of WebAgent-R1 does; `"episode"` a mean over each
episode's tokens, then over episodes, as that of ARPO does. `dual_clip` c bounds what a token of a negative
advantage loses: max(min(…), c A). Optionally a cloning term on the batch's
successful steps anchors what the policy can already do, and one on remembered successes of all families (rehearsal)
what its groups no longer teach, since all their members succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import NotNegative
from hindcast.core.settings.schema import Settings
from hindcast.learner.algorithms.base import SampleTerms
from hindcast.learner.algorithms.group_loss import CHANGEABLE as OF_EVERY_LOSS
from hindcast.learner.algorithms.group_loss import GroupLoss, GroupLossOptions, Surrogate, check_groups
from hindcast.learner.planners.groups import GroupPlanner, episodes_per_batch

if TYPE_CHECKING:
    import torch


class GrpoOptions(GroupLossOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of M-GRPO."""

    clip_low: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    """Lower clip of the ratio."""
    dual_clip: NotNegative = 0.0
    """Bound of the ratio for tokens with a negative advantage (dual clip); above 1 (ARPO's option: 3); 0: no bound."""


class Grpo(GroupLoss):
    """The loss of M-GRPO."""

    def surrogate(self, log_probs: torch.Tensor, terms: SampleTerms) -> Surrogate:
        """See `GroupLoss.surrogate`: min(rho A, clip(rho) A), with the dual clip if it is on."""
        import torch

        options = options_as(self.settings, GrpoOptions)
        low, high = 1 - options.clip_low, 1 + options.clip_high
        ratio = torch.exp(self.log_ratio(log_probs, terms))
        plain = ratio * terms.advantage
        clipped = torch.clamp(ratio, low, high) * terms.advantage
        surrogate = torch.minimum(plain, clipped)
        is_clipped = (clipped < plain).detach()
        if options.dual_clip > 0 and terms.advantage < 0:
            bound = options.dual_clip * terms.advantage
            is_clipped |= plain.detach() < bound
            surrogate = torch.clamp(surrogate, min=bound)
        return Surrogate(surrogate, clipped=is_clipped, learned=~is_clipped)


def check(settings: Settings) -> list[str]:
    """A group of one is compared with nobody, and a low dual clip leaves failures without a gradient."""
    problems, dual_clip = check_groups(settings), options_as(settings.learner, GrpoOptions).dual_clip
    if 0 < dual_clip <= 1:
        problems.append(
            f"learner.options.dual_clip = {dual_clip:g} must be above 1, or 0 for none: below, every failure would be cut"
        )
    return problems


CHANGEABLE = OF_EVERY_LOSS | {"clip_low", "dual_clip"}
"""Options that the learner alone reads."""
ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", group_advantages=True, limits_staleness=True),
    episodes_per_batch=episodes_per_batch,
    planner=GroupPlanner,
    loss=Grpo,
    options=GrpoOptions,
    changeable=CHANGEABLE,
    check=check,
)
