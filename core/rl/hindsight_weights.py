"""Weights of relabeled demonstrations in hindsight supervised learning (HSL), and their weighted sampling.

"Spinning Straw into Gold: Relabeling LLM Agent Trajectories in Hindsight for Successful Demonstrations": n of a
demonstration's T actions are relevant to its goal.
"""

from collections.abc import Sequence
from random import Random


def demonstration_weight(relevance: Sequence[float], *, alpha: float) -> float:
    """Compute w = (n/T)^alpha n: more for long demonstrations, less for many irrelevant actions; 0 for n = 0."""
    relevant = sum(label > 0 for label in relevance)
    return float((relevant / len(relevance)) ** alpha * relevant)


def drawn(weights: Sequence[float], count: int, random: Random) -> list[int]:
    """Draw up to `count` indices without replacement, each in proportion to its weight among those left.

    Takes the smallest of exponential variables with the weights as rates (Efraimidis and Spirakis, 2006). All weights are
    above 0.
    """
    waits = [random.expovariate(1.0) / weight for weight in weights]
    return sorted(range(len(weights)), key=lambda index: (waits[index], index))[:count]
