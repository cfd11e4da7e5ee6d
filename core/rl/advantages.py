"""Group-relative advantages from rewards, and weights of relabeled demonstrations. Pure arithmetic: the same bits on every machine."""

from collections.abc import Sequence
from math import fsum, sqrt
from random import Random
from typing import Literal

Deviation = Literal["population", "sample", "none"]
"""Divisor of the squared differences: N, or N - 1 (`torch.std`, in the released code of WebAgent-R1 and ARPO). `none`: advantages
are not divided by a deviation (Dr. GRPO, arXiv 2503.20783)."""

EPSILON = 1e-4
"""Added to the deviation before dividing, so that nearly equal rewards do not give huge advantages (WebAgent-R1, arXiv
2505.16421, and its released code; the released ARPO has 1e-6)."""

FAILED_DEVIATION, FAILED_MEAN = 0.05, 0.2
"""A group whose deviation and mean are below these has failed altogether (ARPO, arXiv 2505.16282)."""
SUCCESS_RESULT = 0.1
"""A task result above this is a success to store (ARPO)."""


def is_informative(rewards: Sequence[float]) -> bool:
    """Whether a group has at least two members and unequal rewards.

    Compares the rewards themselves, because the deviation of equal floats need not be exactly 0.
    """
    return len(rewards) > 1 and min(rewards) < max(rewards)


def group_advantages(
    rewards: Sequence[float], *, deviation: Deviation = "population", epsilon: float = EPSILON
) -> list[float]:
    """Compute A_i = (R_i - mean) / (std + epsilon) within one group (WebAgent-R1, M-GRPO); 0 if all rewards are equal.

    WebAgent-R1's paper does not say which deviation it means; the released code of WebAgent-R1 and of ARPO uses N - 1.
    Advantages with N are larger by sqrt(N / (N - 1)): 1.07 times for a group of 8, 1.41 times for one of 2. With the
    deviation `none` they are R_i - mean.
    """
    if not is_informative(rewards):
        return [0.0] * len(rewards)
    mean, _ = _mean_and_deviation(rewards)
    divisor = group_divisor(rewards, deviation=deviation, epsilon=epsilon)
    return [(reward - mean) / divisor for reward in rewards]


def group_divisor(rewards: Sequence[float], *, deviation: Deviation, epsilon: float) -> float:
    """Compute what the advantages of a group with unequal rewards are divided by: std + epsilon, or 1."""
    if deviation == "none":
        return 1.0
    _, spread = _mean_and_deviation(rewards)
    if deviation == "sample":
        spread *= sqrt(len(rewards) / (len(rewards) - 1))
    return spread + epsilon


def overlong_term(steps: int, limit: int, *, buffer: float, penalty: float) -> float:
    """Compute DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13) of an episode that took `steps` of `limit` steps.

    0 up to (1 - buffer) limit steps, from there linearly down to -penalty at the limit. `buffer` is L_cache / L_max of the
    paper, 0 < buffer <= 1.
    """
    excess = (steps - (1 - buffer) * limit) / (buffer * limit)
    return 0.0 - penalty * min(max(excess, 0.0), 1.0)


def failed_altogether(results: Sequence[float]) -> bool:
    """Whether nearly all task results of a group are failures, which triggers a success replay in ARPO."""
    if len(results) < 2:
        return False
    mean, deviation = _mean_and_deviation(results)
    return deviation < FAILED_DEVIATION and mean < FAILED_MEAN


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    mean = fsum(values) / len(values)
    return mean, sqrt(fsum((value - mean) ** 2 for value in values) / len(values))


def demonstration_weight(relevance: Sequence[float], *, alpha: float) -> float:
    """Compute w = (n/T)^alpha n: more for long demonstrations, less for many irrelevant actions; 0 for n = 0.

    Hindsight supervised learning ("Spinning Straw into Gold: Relabeling LLM Agent Trajectories in Hindsight for Successful
    Demonstrations"): n of a demonstration's T actions are relevant to its goal.
    """
    relevant = sum(label > 0 for label in relevance)
    return float((relevant / len(relevance)) ** alpha * relevant)


def drawn(weights: Sequence[float], count: int, random: Random) -> list[int]:
    """Draw up to `count` indices without replacement, each in proportion to its weight among those left.

    Takes the smallest of exponential variables with the weights as rates (Efraimidis and Spirakis, 2006). All weights are
    above 0.
    """
    waits = [random.expovariate(1.0) / weight for weight in weights]
    return sorted(range(len(weights)), key=lambda index: (waits[index], index))[:count]
