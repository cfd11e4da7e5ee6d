"""What losses over groups have in common: their means, the KL penalty, the cloning terms and the report. No loss by itself.

    L = sum over tokens of share [ -w S + beta KL ] - cloning_share log pi

S is the surrogate that an algorithm maximizes, w the off-policy correction (`core.rl.importance_weights`), KL the k3 estimate
to the policy that RL started from. An algorithm says what S is, and which mean the shares are of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.algorithm_options import GroupOptions, NotNegative, Positive
from hindcast.core.rl.loss_normalization import EpisodeTokens, loss_shares
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms
from hindcast.learner.planners.groups import CHANGEABLE as OF_PLANNER

if TYPE_CHECKING:
    import torch


class GroupLossOptions(GroupOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of algorithms whose loss is a `GroupLoss`."""

    clip_high: Positive = 0.28
    """Upper clip of the ratio. If above `clip_low`, unlikely tokens may rise faster than likely ones fall (ARPO, DAPO)."""
    cloning_coefficient: NotNegative = 0.0
    """Weight of a cloning term on the batch's successful steps."""
    rehearsal_coefficient: Positive = 0.5
    """Weight of the cloning term on rehearsed successes (`rehearsal_episodes`)."""


CHANGEABLE = OF_PLANNER | {"clip_high", "cloning_coefficient", "rehearsal_coefficient"}
"""Options that the learner alone reads."""


class Surrogate(NamedTuple):
    """What is maximized for one sample's action tokens."""

    values: torch.Tensor
    """With gradient  # [tokens]."""
    clipped: torch.Tensor
    """Tokens whose ratio is clipped, bool  # [tokens]."""
    learned: torch.Tensor
    """Tokens with a gradient, bool  # [tokens]."""


class GroupLoss(ABC):
    """Base of losses that compare the members of groups; implements `Loss`."""

    def __init__(self, settings: LearnerSettings) -> None:
        """`settings`: the section `learner`."""
        self.settings = settings

    @abstractmethod
    def surrogate(self, log_probs: torch.Tensor, terms: SampleTerms) -> Surrogate:
        """The surrogate of one sample, from its action tokens' log-probabilities  # [tokens], with gradient."""

    def log_ratio(self, log_probs: torch.Tensor, terms: SampleTerms) -> torch.Tensor:
        """Logarithm of the ratio that is clipped, rho = pi / pi_prox of each token  # [tokens]."""
        import torch

        return log_probs - torch.from_numpy(terms.proximal)

    def mean(self, episodes: Sequence[EpisodeTokens]) -> list[float]:
        """Share of one token of each sample in a mean over these episodes  # [samples]."""
        return loss_shares(self.settings.loss_mean, episodes)

    def is_compared(self, episode: EpisodePart) -> bool:
        """Whether the policy is trained on an episode by its advantage."""
        return not episode.rehearsed

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`: the cloning term is a mean of its own, over the successful episodes."""
        options = options_as(self.settings, GroupLossOptions)
        is_compared = [self.is_compared(episode) for episode in episodes]
        is_imitated = [episode.succeeded and not episode.rehearsed for episode in episodes]
        cloning = self._shares_of(episodes, is_imitated, options.cloning_coefficient)
        rehearsal = self._shares_of(
            episodes, [episode.rehearsed for episode in episodes], options.rehearsal_coefficient
        )
        return (
            self._shares_of(episodes, is_compared, 1.0),
            [share + rehearsal_share for share, rehearsal_share in zip(cloning, rehearsal, strict=True)],
        )

    def _shares_of(
        self, episodes: Sequence[EpisodePart], counts: Sequence[bool], coefficient: float
    ) -> list[float]:
        """The mean over those episodes that count, times a coefficient; 0 for the samples of the others."""
        counted = [episode.tokens for episode, count in zip(episodes, counts, strict=True) if count]
        shares = iter(self.mean(counted))
        return [
            coefficient * next(shares) if count else 0.0
            for episode, count in zip(episodes, counts, strict=True)
            for _ in episode.tokens.tokens
        ]

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        import torch

        surrogate = self.surrogate(log_probs, terms)
        policy = -torch.from_numpy(terms.correction.weights) * surrogate.values
        total = policy
        kl = torch.zeros_like(log_probs)
        if terms.reference is not None:
            difference = torch.from_numpy(terms.reference) - log_probs
            kl = torch.exp(difference) - difference - 1
            total = policy + options_as(self.settings, GroupLossOptions).kl_coefficient * kl
        loss = terms.share * total.sum()
        if terms.cloning_share > 0:
            loss = loss - terms.cloning_share * log_probs.sum()
        with torch.no_grad():
            mask = torch.from_numpy(terms.correction.kept)
            surprisal = float(-log_probs.sum())
            return SampleLoss(
                loss=loss,
                policy=terms.share * float(policy.sum()),
                cloning=terms.cloning_share * surprisal,
                kl=float(kl.sum()),
                surprisal=surprisal,
                ratio=float(torch.exp(log_probs - torch.from_numpy(terms.behaviour)).sum()),
                clipped=int((surrogate.clipped & mask).sum()),
                contributing=int((surrogate.learned & mask).sum()),
            )


def check_groups(settings: Settings) -> list[str]:
    """A group of one is compared with nobody."""
    if settings.curriculum.group_size >= 2:
        return []
    return [
        f"curriculum.group_size = 1 leaves learner.algorithm = {settings.learner.algorithm!r} nothing to compare: it needs "
        "at least 2"
    ]
