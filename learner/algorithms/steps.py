"""What losses over whole actions have in common: every step counts alike, and log pi of an action sums over its tokens."""

from collections.abc import Sequence

import torch

from hindcast.core.rl.loss_normalization import EpisodeTokens, nested_shares
from hindcast.learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms


def step_shares(episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
    """The mean over the steps that are trained on, however long their episodes; no cloning term beside it."""
    counts = [
        counts for episode in episodes for counts in episode.kept or bytes([1] * len(episode.tokens.tokens))
    ]
    tokens = [tokens for episode in episodes for tokens in episode.tokens.tokens]
    steps = [EpisodeTokens("", (one,)) for one, count in zip(tokens, counts, strict=True) if count]
    shares = iter(nested_shares(steps))
    return [next(shares) if count else 0.0 for count in counts], [0.0] * len(counts)


def step_share(terms: SampleTerms) -> float:
    """Of the whole step; `terms.share` is that of one of its tokens."""
    return terms.share * terms.sample.tokens


def step_loss(
    loss: torch.Tensor, log_probs: torch.Tensor, terms: SampleTerms, *, contributes: bool
) -> SampleLoss:
    """The loss of one step with what there is to tell about it; `log_probs` of its tokens  # [tokens]."""
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
