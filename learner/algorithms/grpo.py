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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import GroupOptions, NotNegative, Positive
from hindcast.core.rl.loss_normalization import loss_shares
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms
from hindcast.learner.planners.groups import CHANGEABLE, GroupPlanner, episodes_per_batch

if TYPE_CHECKING:
    import torch


class GrpoOptions(GroupOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of M-GRPO."""

    clip_low: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    """Lower clip of the ratio."""
    clip_high: Positive = 0.28
    """Upper clip of the ratio. If above `clip_low`, unlikely tokens may rise faster than likely ones fall (ARPO)."""
    dual_clip: NotNegative = 0.0
    """Bound of the ratio for tokens with a negative advantage (dual clip); above 1 (ARPO's option: 3); 0: no bound."""
    cloning_coefficient: NotNegative = 0.0
    """Weight of a cloning term on the batch's successful steps."""
    rehearsal_coefficient: Positive = 0.5
    """Weight of the cloning term on rehearsed successes (`rehearsal_episodes`)."""


class Grpo:
    """The loss of M-GRPO."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._loss_mean = settings.loss_mean
        self._options = options_as(settings, GrpoOptions)

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`: the cloning term is a mean of its own, over the successful episodes."""
        options = self._options
        compared = [not episode.rehearsed for episode in episodes]
        imitated = [episode.succeeded and not episode.rehearsed for episode in episodes]
        cloning = self._shares_of(episodes, imitated, options.cloning_coefficient)
        rehearsed = self._shares_of(
            episodes, [episode.rehearsed for episode in episodes], options.rehearsal_coefficient
        )
        return (
            self._shares_of(episodes, compared, 1.0),
            [own + other for own, other in zip(cloning, rehearsed, strict=True)],
        )

    def _shares_of(
        self, episodes: Sequence[EpisodePart], counts: Sequence[bool], coefficient: float
    ) -> list[float]:
        """The mean over those episodes that count, times a coefficient; 0 for the samples of the others."""
        chosen = [episode.tokens for episode, count in zip(episodes, counts, strict=True) if count]
        shares = iter(loss_shares(self._loss_mean, chosen))
        return [
            coefficient * next(shares) if count else 0.0
            for episode, count in zip(episodes, counts, strict=True)
            for _ in episode.tokens.tokens
        ]

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        import torch

        options = self._options
        low, high = 1 - options.clip_low, 1 + options.clip_high
        ratio = torch.exp(log_probs - torch.from_numpy(terms.proximal))
        plain = ratio * terms.advantage
        clipped = torch.clamp(ratio, low, high) * terms.advantage
        surrogate = torch.minimum(plain, clipped)
        is_clipped = (clipped < plain).detach()
        if options.dual_clip > 0 and terms.advantage < 0:
            bound = options.dual_clip * terms.advantage
            is_clipped |= plain.detach() < bound
            surrogate = torch.clamp(surrogate, min=bound)
        policy = -torch.from_numpy(terms.correction.weights) * surrogate
        total = policy
        kl = torch.zeros_like(log_probs)
        if terms.reference is not None:
            difference = torch.from_numpy(terms.reference) - log_probs
            kl = torch.exp(difference) - difference - 1
            total = policy + options.kl_coefficient * kl
        loss = terms.share * total.sum()
        if terms.cloning_share > 0:
            loss = loss - terms.cloning_share * log_probs.sum()
        with torch.no_grad():
            kept = torch.from_numpy(terms.correction.kept)
            surprisal = float(-log_probs.sum())
            return SampleLoss(
                loss=loss,
                policy=terms.share * float(policy.sum()),
                cloning=terms.cloning_share * surprisal,
                kl=float(kl.sum()),
                surprisal=surprisal,
                ratio=float(torch.exp(log_probs - torch.from_numpy(terms.behaviour)).sum()),
                clipped=int((is_clipped & kept).sum()),
                contributing=int((kept & ~is_clipped).sum()),
            )


def check(settings: Settings) -> list[str]:
    """A group of one is compared with nobody, and a low dual clip leaves failures without a gradient."""
    found, dual_clip = [], options_as(settings.learner, GrpoOptions).dual_clip
    if settings.curriculum.group_size < 2:
        found.append(
            "curriculum.group_size = 1 leaves learner.algorithm = 'grpo' nothing to compare: it needs at least 2"
        )
    if 0 < dual_clip <= 1:
        found.append(
            f"learner.options.dual_clip = {dual_clip:g} must be above 1, or 0 for none: below, every failure would be cut"
        )
    return found


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", group_advantages=True, limits_staleness=True),
    episodes_per_batch=episodes_per_batch,
    planner=GroupPlanner,
    loss=Grpo,
    options=GrpoOptions,
    changeable=CHANGEABLE
    | {"clip_low", "clip_high", "dual_clip", "cloning_coefficient", "rehearsal_coefficient"},
    check=check,
)
