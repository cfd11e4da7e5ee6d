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
from typing import TYPE_CHECKING

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits
from hindcast.core.rl.loss_normalization import loss_shares
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms
from hindcast.learner.planners.groups import GroupPlanner

if TYPE_CHECKING:
    import torch


class Grpo:
    """The loss of M-GRPO."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`: the cloning term is a mean of its own, over the successful episodes."""
        settings = self._settings
        compared = [not episode.rehearsed for episode in episodes]
        imitated = [episode.succeeded and not episode.rehearsed for episode in episodes]
        cloning = self._shares_of(episodes, imitated, settings.cloning_coefficient)
        rehearsed = self._shares_of(
            episodes, [episode.rehearsed for episode in episodes], settings.rehearsal_coefficient
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
        shares = iter(loss_shares(self._settings.loss_mean, chosen))
        return [
            coefficient * next(shares) if count else 0.0
            for episode, count in zip(episodes, counts, strict=True)
            for _ in episode.tokens.tokens
        ]

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        import torch

        settings = self._settings
        low, high = 1 - settings.clip_low, 1 + settings.clip_high
        ratio = torch.exp(log_probs - torch.from_numpy(terms.proximal))
        plain = ratio * terms.advantage
        clipped = torch.clamp(ratio, low, high) * terms.advantage
        surrogate = torch.minimum(plain, clipped)
        is_clipped = (clipped < plain).detach()
        if settings.dual_clip > 0 and terms.advantage < 0:
            bound = settings.dual_clip * terms.advantage
            is_clipped |= plain.detach() < bound
            surrogate = torch.clamp(surrogate, min=bound)
        policy = -torch.from_numpy(terms.correction.weights) * surrogate
        total = policy
        kl = torch.zeros_like(log_probs)
        if terms.reference is not None:
            difference = torch.from_numpy(terms.reference) - log_probs
            kl = torch.exp(difference) - difference - 1
            total = policy + settings.kl_coefficient * kl
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
    """A group of one is compared with nobody."""
    if settings.curriculum.group_size >= 2:
        return []
    return [
        "curriculum.group_size = 1 leaves learner.algorithm = 'grpo' nothing to compare: it needs at least 2"
    ]


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", group_advantages=True, limits_staleness=True),
    episodes_per_batch=lambda settings: settings.learner.group_batch * settings.curriculum.group_size,
    planner=GroupPlanner,
    loss=Grpo,
    check=check,
)
