"""GSPO, group sequence policy optimization (arXiv 2507.18071, eq. 5 to 7, in the form of GSPO-token, section 4.3).

    L = -1/G sum_i min(s_i A_i, clip(s_i, 1-low, 1+high) A_i)        s_i = (pi(y_i) / pi_prox(y_i))^(1/|y_i|)

The ratio belongs to a sequence, not to a token: it is the geometric mean of the ratios of its |y_i| tokens, and a sequence is
clipped as a whole. Per token t the code has s_it = sg[s_i] pi_t / sg[pi_t], with sg the stop-gradient: its value is s_i, and the
gradient is that of eq. 5, because every token of a sequence has the same share. So a token that the off-policy correction
leaves out has no gradient, and still counts in s_i.

The paper has one response per prompt. An episode has one per step, so `sequence` says what y_i is:

- `step`: the answer of one step. It is what the policy samples at once for one prompt, and needs no further computation. The mean
  is M-GRPO's (steps of an episode, episodes of a group, groups).
- `episode`: all answers of an episode, since its one reward is of them all; multi-turn training on whole conversations does the
  same. s_i is computed when an update starts, by one more forward pass. The mean is over episodes.

Ratios of sequences are much closer to 1 than those of tokens: the paper's clips are 3e-4 and 4e-4. The authors train without KL.
`learner.loss_mean` has no effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from msgspec import Meta

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import NotNegative, Positive
from hindcast.core.rl.loss_normalization import EpisodeTokens, episode_shares, nested_shares
from hindcast.core.settings.schema import Settings
from hindcast.learner.algorithms.base import CurrentLogProbs, SampleTerms
from hindcast.learner.algorithms.grpo import CHANGEABLE, Grpo, GrpoOptions
from hindcast.learner.algorithms.grpo import check as check_as_grpo
from hindcast.learner.planners.groups import GroupPlanner, episodes_per_batch

if TYPE_CHECKING:
    import torch


TOO_WIDE = 0.1
"""A clip this wide is one of tokens' ratios: the paper's are 3e-4 and 4e-4."""


class GspoOptions(GrpoOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of GSPO."""

    sequence: Literal["step", "episode"] = "step"
    """Tokens that have one ratio: `step`: those of a step's answer; `episode`: those of all answers of an episode."""
    clip_low: Annotated[float, Meta(gt=0, lt=1)] = 3e-4
    """Lower clip of a sequence's ratio."""
    clip_high: Positive = 4e-4
    """Upper clip of a sequence's ratio."""
    kl_coefficient: NotNegative = 0.0
    """Weight of the k3 estimate of KL to the reference policy, per token; the authors have none."""


class Gspo(Grpo):
    """The loss of GSPO; implements `Weighing` for the ratios of episodes."""

    @property
    def _of_episodes(self) -> bool:
        return options_as(self.settings, GspoOptions).sequence == "episode"

    def mean(self, episodes: Sequence[EpisodeTokens]) -> list[float]:
        """See `GroupLoss.mean`: each sequence counts as one, and each of its tokens alike."""
        return episode_shares(episodes) if self._of_episodes else nested_shares(episodes)

    def weigh(self, terms: Sequence[SampleTerms], current: CurrentLogProbs) -> Sequence[SampleTerms]:
        """See `Weighing`: pi_prox becomes pi / s_i with pi as the update starts, so that the ratio to it is the episode's."""
        if not self._of_episodes:
            return terms
        indices = [index for index, term in enumerate(terms) if term.share > 0]
        current_log_probs = current([terms[index].sample for index in indices])
        answer_log_probs = {
            index: values[terms[index].first :]
            for index, values in zip(indices, current_log_probs, strict=True)
        }
        ratios: dict[str, list[np.ndarray]] = defaultdict(list)
        for index, values in answer_log_probs.items():
            ratios[terms[index].sample.episode].append(values.astype(np.float64) - terms[index].proximal)
        means = {episode: float(np.concatenate(each).mean()) for episode, each in ratios.items()}
        return [
            replace(term, proximal=(answer_log_probs[index] - means[term.sample.episode]).astype(np.float32))
            if index in answer_log_probs
            else term
            for index, term in enumerate(terms)
        ]

    def log_ratio(self, log_probs: torch.Tensor, terms: SampleTerms) -> torch.Tensor:
        """See `GroupLoss.log_ratio`: the same value for every token of a sequence, each with the gradient of its own."""
        of_tokens = super().log_ratio(log_probs, terms)
        if self._of_episodes:
            return of_tokens
        return log_probs - log_probs.detach() + of_tokens.mean().detach()


def check(settings: Settings) -> list[str]:
    """As for GRPO; and its clips of tokens' ratios would never clip a sequence's."""
    options = options_as(settings.learner, GspoOptions)
    problems = check_as_grpo(settings)
    if max(options.clip_low, options.clip_high) >= TOO_WIDE:
        problems.append(
            f"learner.options.clip_low = {options.clip_low:g} and learner.options.clip_high = {options.clip_high:g} are clips "
            "of tokens' ratios. learner.algorithm = 'gspo' clips ratios of whole sequences, which stay near 1: "
            "set learner.options.clip_low=3e-4 and learner.options.clip_high=4e-4"
        )
    return problems


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", group_advantages=True, limits_staleness=True),
    episodes_per_batch=episodes_per_batch,
    planner=GroupPlanner,
    loss=Gspo,
    options=GspoOptions,
    changeable=CHANGEABLE | {"sequence"},
    check=check,
)
