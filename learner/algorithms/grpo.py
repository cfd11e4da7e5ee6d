"""M-GRPO, multi-turn group-relative policy optimisation (WebAgent-R1, arXiv 2505.16421, eq. 4).

    L = -1/G sum_i 1/|tau_i| sum_j 1/|a_ij| sum_t [ w min(rho A, clip(rho, 1-low, 1+high) A) - beta KL ]

rho = pi / pi_prox with pi_prox at the start of the batch, A from the rewards of the group, w the off-policy correction
(`core.correction`), KL the k3 estimate to the policy that RL started from. `loss_mean = "token"` takes one mean over
all tokens instead of the three nested ones, as the released code does. Optionally a cloning term on the batch's
successful steps anchors what the policy can already do.
"""

from collections.abc import Sequence

import torch

from core.losses import loss_shares
from core.settings import LearnerSettings
from learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms


class Grpo:
    """The loss of M-GRPO."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Algorithm.shares`: the cloning term is a mean of its own, over the successful episodes."""
        mean = self._settings.loss_mean
        shares = loss_shares(mean, [episode.tokens for episode in episodes])
        coefficient = self._settings.cloning_coefficient
        if coefficient == 0 or not any(episode.succeeded for episode in episodes):
            return shares, [0.0] * len(shares)
        imitated = iter(loss_shares(mean, [episode.tokens for episode in episodes if episode.succeeded]))
        cloning = [
            coefficient * next(imitated) if episode.succeeded else 0.0
            for episode in episodes
            for _ in episode.tokens.tokens
        ]
        return shares, cloning

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Algorithm.sample_loss`."""
        settings = self._settings
        low, high = 1 - settings.clip_low, 1 + settings.clip_high
        ratio = torch.exp(log_probs - torch.from_numpy(terms.proximal))
        plain = ratio * terms.advantage
        clipped = torch.clamp(ratio, low, high) * terms.advantage
        policy = -torch.from_numpy(terms.correction.weights) * torch.minimum(plain, clipped)
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
            is_clipped = clipped < plain
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
