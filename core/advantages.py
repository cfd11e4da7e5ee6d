"""Advantages from the rewards of a group. Pure arithmetic: the same bits on every machine."""

from collections.abc import Sequence
from math import fsum, sqrt

STABILITY = 1e-4
"""Added to the deviation before dividing, as in WebAgent-R1 (arXiv 2505.16421): rewards that hardly differ do not explode."""


def is_informative(rewards: Sequence[float]) -> bool:
    """Whether a group tells its members apart: at least two of them, and not all with one reward.

    Compares the rewards themselves: the deviation of equal floats need not come out as exactly 0.
    """
    return len(rewards) > 1 and min(rewards) < max(rewards)


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """A_i = (R_i - mean) / (std + 1e-4) with the population deviation (WebAgent-R1, M-GRPO); zeros where all agree."""
    if not is_informative(rewards):
        return [0.0] * len(rewards)
    mean = fsum(rewards) / len(rewards)
    deviation = sqrt(fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (deviation + STABILITY) for reward in rewards]
