"""What losses over whole actions have in common, whose advantages come from a critic: every step counts alike, and log pi
of an action sums over its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.algorithm_options import PhaseOptions
from hindcast.core.rl.loss_normalization import EpisodeTokens, nested_shares
from hindcast.core.rl.values import blended_advantages, released_advantages
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms

if TYPE_CHECKING:
    import torch


class StepOptions(PhaseOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of algorithms that turn the critic's values into advantages."""

    advantage: Literal["paper", "released"] = "paper"
    """Advantages from values: `paper`: a blend of one step and the whole return (WebRL's paper); `released`: +1 or -.6
    (WebRL's released code)."""
    advantage_blend: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """lambda: weight of the one-step part of the paper's advantage."""


class StepLoss:
    """Base of such losses."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`: the mean over the steps that are trained on, however long their episodes."""
        counts = [
            counts
            for episode in episodes
            for counts in episode.kept or bytes([1] * len(episode.tokens.tokens))
        ]
        tokens = [tokens for episode in episodes for tokens in episode.tokens.tokens]
        steps = [
            EpisodeTokens("", (token_count,))
            for token_count, count in zip(tokens, counts, strict=True)
            if count
        ]
        shares = iter(nested_shares(steps))
        return [next(shares) if count else 0.0 for count in counts], [0.0] * len(counts)

    def step_advantages(
        self, planned: Sequence[PlannedEpisode], values: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """See `Valuing`: as the option `advantage` says."""
        options = options_as(self._settings, StepOptions)
        return [
            released_advantages(step_values, episode.reward, discount=options.discount)
            if options.advantage == "released"
            else blended_advantages(
                step_values, episode.reward, blend=options.advantage_blend, discount=options.discount
            )
            for episode, step_values in zip(planned, values, strict=True)
        ]


def step_share(terms: SampleTerms) -> float:
    """Of the whole step; `terms.share` is that of one of its tokens."""
    return terms.share * terms.sample.tokens


def step_loss(
    loss: torch.Tensor, log_probs: torch.Tensor, terms: SampleTerms, *, contributes: bool
) -> SampleLoss:
    """The loss of one step with what there is to tell about it; `log_probs` of its tokens  # [tokens]."""
    import torch

    with torch.no_grad():
        kl = torch.zeros_like(log_probs)
        if terms.reference is not None:
            difference = torch.from_numpy(terms.reference) - log_probs
            kl = torch.exp(difference) - difference - 1
        return SampleLoss(
            loss=loss,
            policy=float(loss),
            cloning=0.0,
            kl=float(kl.sum()),
            surprisal=float(-log_probs.sum()),
            ratio=float(torch.exp(log_probs - torch.from_numpy(terms.behaviour)).sum()),
            clipped=0,
            contributing=len(log_probs) if contributes else 0,
        )
