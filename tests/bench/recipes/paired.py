"""Statistics of two rows that were run under the same seeds and measured on the same tasks. Seeds are the unit.

A seed's two runs share checkpoint and tasks, so what counts is how much one differs from the other within a seed. That
difference varies by seed for two reasons, both of which the spread over seeds contains: training varies, and a finite
number of tasks is measured. Student's t over the seeds' log ratios therefore covers both, assuming only that they are
about normal. A bootstrap over few seeds is too narrow: with 5 seeds its nominal 95 % interval covers 85 % in simulations
of this design (`tests/unit/test_bench_paired.py`), Student's 95 %. Katz' interval for two independent proportions ignores
the spread of seeds (too narrow) and the pairing (too wide).
"""

from collections.abc import Sequence
from math import exp, inf, log, sqrt

import msgspec
import numpy as np
from scipy.stats import t as student

from hindcast.core.rl.statistics import Interval

POWER_DRAWS = 2000


class SeedPair(msgspec.Struct, frozen=True):
    """Success of both rows on the tasks of one seed that both have a verdict on."""

    ours: float
    theirs: float
    tasks: int

    @property
    def log_ratio(self) -> float:
        """log(ours / theirs) with half a success added to both, so that a rate of 0 has one."""
        return log((self.ours * self.tasks + 0.5) / (self.theirs * self.tasks + 0.5))


def seed_pair(ours: Sequence[float], theirs: Sequence[float]) -> SeedPair | None:
    """Of two rows' outcomes by task, in the same order: 1 won, 0 lost, nan without a verdict. Tasks that miss one are left out;
    None: no task has both."""
    both = np.array([ours, theirs], dtype=float)
    kept = both[:, ~np.isnan(both).any(axis=0)]
    if not kept.shape[1]:
        return None
    return SeedPair(float(kept[0].mean()), float(kept[1].mean()), kept.shape[1])


def ratio(pairs: Sequence[SeedPair]) -> Interval:
    """Geometric mean over the seeds of ours / theirs, with Student's 95 % interval of the log ratios.

    One seed has no spread: the interval is [0, inf].
    """
    found = mean_of([one.log_ratio for one in pairs])
    return Interval(rate=exp(found.rate), low=exp(found.low), high=exp(found.high) if len(pairs) > 1 else inf)


def points(pairs: Sequence[SeedPair]) -> Interval:
    """Mean over the seeds of ours - theirs, with Student's 95 % interval."""
    return mean_of([one.ours - one.theirs for one in pairs])


def mean_of(values: Sequence[float]) -> Interval:
    """Mean with Student's two-sided 95 % interval; infinitely wide for one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(rate=mean, low=-float("inf"), high=float("inf"))
    half = float(student.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / sqrt(len(values))
    return Interval(rate=mean, low=mean - half, high=mean + half)


def power(
    ours: float, theirs: float, *, seeds: int, tasks: int, spread: float, draws: int = POWER_DRAWS
) -> float:
    """Probability that the interval of `ratio` lies above 1, by simulation.

    `ours`, `theirs`: success rates. `spread`: standard deviation of a row's true success over seeds, in points / 100. Draws
    rows of a seed independently, which ignores the pairing by tasks: the true power is higher.
    """
    if seeds < 2:
        return 0.0
    random = np.random.default_rng(0)
    true = random.normal([ours, theirs], spread, size=(draws, seeds, 2)).clip(0.005, 0.995)
    won = random.binomial(tasks, true)
    ratios = np.log(won[..., 0] + 0.5) - np.log(won[..., 1] + 0.5)
    half = student.ppf(0.975, seeds - 1) * ratios.std(axis=1, ddof=1) / sqrt(seeds)
    return float((ratios.mean(axis=1) - half > 0).mean())
