"""Dr. GRPO, "GRPO done right" (arXiv 2503.20783, section 3.2; GRPO's objective without its two biased terms).

    L = -1/N sum_i 1/C sum_t w min(rho A, clip(rho, 1-low, 1+high) A)        A = R - mean of the group's R

N episodes of the mini-batch, tokens t of all steps of an episode. Two things differ from GRPO. The sum over tokens is divided by
a constant C, not by the episode's own length, so long failures are not favored. A is not divided by the deviation of the group's
rewards, so very easy and very hard tasks do not count more. As in the released code (`masked_sum` with the generation budget as
`constant_normalizer`), C stands for the most tokens that a response may have; here it is the option `episode_tokens`.
The paper has no KL penalty. `learner.loss_mean` has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence

from hindcast.core.rl.advantages import Deviation
from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import NotNegative, Number, Positive
from hindcast.core.rl.loss_normalization import EpisodeTokens, constant_shares
from hindcast.learner.algorithms.grpo import CHANGEABLE, Grpo, GrpoOptions, check
from hindcast.learner.planners.groups import GroupPlanner, episodes_per_batch


class DrGrpoOptions(GrpoOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Dr. GRPO."""

    episode_tokens: Number = 128
    """Constant C that an episode's sum over tokens is divided by, in place of its own number of tokens. With about as many
    tokens per episode the loss has the scale of GRPO's; the released code has the most tokens that a response may have."""
    group_deviation: Deviation = "none"
    """Divisor of advantages: `none`: they are R - mean (the paper); `population`, `sample`: as in GRPO."""
    clip_high: Positive = 0.2
    """Upper clip of the ratio; the released code has .2 on both sides."""
    kl_coefficient: NotNegative = 0.0
    """Weight of the k3 estimate of KL to the reference policy; the paper has none."""


class DrGrpo(Grpo):
    """The loss of Dr. GRPO."""

    def mean(self, episodes: Sequence[EpisodeTokens]) -> list[float]:
        """See `GroupLoss.mean`: the mean over episodes of their sum over tokens / C."""
        return constant_shares(episodes, options_as(self.settings, DrGrpoOptions).episode_tokens)


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", group_advantages=True, limits_staleness=True),
    episodes_per_batch=episodes_per_batch,
    planner=GroupPlanner,
    loss=DrGrpo,
    options=DrGrpoOptions,
    changeable=CHANGEABLE | {"episode_tokens"},
    check=check,
)
