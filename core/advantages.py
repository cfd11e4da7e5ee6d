"""Advantages from the rewards of a group. Pure arithmetic: the same bits on every machine."""

from collections.abc import Sequence
from math import fsum, sqrt

STABILITY = 1e-4
"""Added to the deviation before dividing, as in WebAgent-R1 (arXiv 2505.16421): rewards that hardly differ do not explode."""

FAILED_DEVIATION, FAILED_MEAN = 0.05, 0.2
"""A group has failed altogether below both (ARPO, arXiv 2505.16282)."""
SUCCESS_RESULT = 0.1
"""A task result above it is a success worth storing (ARPO)."""


def is_informative(rewards: Sequence[float]) -> bool:
    """Whether a group tells its members apart: at least two of them, and not all with one reward.

    Compares the rewards themselves: the deviation of equal floats need not come out as exactly 0.
    """
    return len(rewards) > 1 and min(rewards) < max(rewards)


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """A_i = (R_i - mean) / (std + 1e-4) with the population deviation (WebAgent-R1, M-GRPO); zeros where all agree."""
    if not is_informative(rewards):
        return [0.0] * len(rewards)
    mean, deviation = _mean_and_deviation(rewards)
    return [(reward - mean) / (deviation + STABILITY) for reward in rewards]


def failed_altogether(results: Sequence[float]) -> bool:
    """Whether a group, by its task results alone, all but agrees on failure: what calls for a replay in ARPO."""
    if len(results) < 2:
        return False
    mean, deviation = _mean_and_deviation(results)
    return deviation < FAILED_DEVIATION and mean < FAILED_MEAN


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    mean = fsum(values) / len(values)
    return mean, sqrt(fsum((value - mean) ** 2 for value in values) / len(values))
