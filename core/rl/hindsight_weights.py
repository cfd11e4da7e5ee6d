"""How much a relabelled demonstration counts in hindsight supervised learning, and which of them are drawn.

"Spinning Straw into Gold: Relabeling LLM Agent Trajectories in Hindsight for Successful Demonstrations": n of a
demonstration's T actions are relevant to its goal.
"""

from collections.abc import Sequence
from random import Random


def demonstration_weight(relevance: Sequence[float], *, alpha: float) -> float:
    """w = (n/T)^alpha n: long ones count more, ones full of what their goal did not need count less; 0 for n = 0."""
    relevant = sum(label > 0 for label in relevance)
    return float((relevant / len(relevance)) ** alpha * relevant)


def drawn(weights: Sequence[float], count: int, random: Random) -> list[int]:
    """Indices of `count` draws without replacement, or of all there are, each by its weight among those left.

    The smallest of exponential variables with these rates (Efraimidis and Spirakis, 2006); all weights are above 0.
    """
    waits = [random.expovariate(1.0) / weight for weight in weights]
    return sorted(range(len(weights)), key=lambda index: (waits[index], index))[:count]
