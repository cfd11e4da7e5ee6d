"""Hindsight supervised learning: imitate what relabelled episodes did for the goals that they achieved.

    L = lambda L_relabelled + (1 - lambda) L_given,    each the mean over its demonstrations of
    1/T sum_t -z_t log pi(a_t | history, I')

z_t is an action's relevance to the goal I', 1 throughout in a given demonstration; T counts all actions of one, relevant or
not. log pi(a_t) is the mean over the action's tokens, or their sum (`learner.hsl_tokens`). With `hsl_weighting = "factor"`
a relabelled demonstration also counts by its weight over the mean weight of those beside it. No off-policy correction.
"""

from collections.abc import Sequence

from hindcast.learner.algorithms.base import EpisodePart
from hindcast.learner.algorithms.cloning import Cloning


class Hsl(Cloning):
    """The loss of hindsight supervised learning: cloning's, with shares of its own."""

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Algorithm.shares`."""
        relabelled = sum(episode.step_weights is not None for episode in episodes)
        given = len(episodes) - relabelled
        mixture = self._settings.hsl_mixture
        shares: list[float] = []
        for episode in episodes:
            tokens = episode.tokens.tokens
            weights = episode.step_weights
            part = (1.0 - mixture) / given if weights is None else mixture / relabelled
            for count, weight in zip(tokens, weights or (1.0,) * len(tokens), strict=True):
                over = len(tokens) * (count if self._settings.hsl_tokens == "mean" else 1)
                shares.append(part * weight / over)
        return shares, [0.0] * len(shares)
