"""Confidence intervals of rates, agreement of two raters, accuracies of a judge, and quality of predicted probabilities.

No rate is shown without its interval.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import fsum, sqrt
from statistics import fmean, stdev

import msgspec


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A rate with its 95 % confidence interval."""

    rate: float
    low: float
    high: float


NORMAL_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""
MOST_KEPT = 4096
"""Most intervals kept for the next call. The curve of a long run needs thousands, of few different counts."""


@lru_cache(MOST_KEPT)
def wilson(successes: int, trials: int, *, z: float = NORMAL_95) -> Interval:
    """Wilson's score interval of a proportion. It holds near 0 and 1 and for few trials, where rate ± 2 s.e. fails.

    Without trials: rate 0, interval [0, 1].
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must lie between 0 and trials: got {successes} of {trials}")
    if trials == 0:
        return Interval(rate=0.0, low=0.0, high=1.0)
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    spread = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == trials else (centre + spread) / scale
    return Interval(rate=rate, low=low, high=high)


def proportion(successes: int, trials: int) -> Interval | None:
    """Rate with its Wilson interval; None without trials."""
    return wilson(successes, trials) if trials else None


def mean_interval(values: Sequence[float], *, z: float = NORMAL_95) -> Interval:
    """Mean of values in [0, 1] with the normal interval of their sample deviation, clamped to [0, 1].

    Fewer than two values have no deviation: the interval is [0, 1].
    """
    mean = fmean(values) if values else 0.0
    if len(values) < 2:
        return Interval(rate=mean, low=0.0, high=1.0)
    half = z * stdev(values) / sqrt(len(values))
    return Interval(rate=mean, low=max(0.0, mean - half), high=min(1.0, mean + half))


def cohen_kappa(counts: Mapping[tuple[str, str], int]) -> float | None:
    """Agreement of two raters beyond chance (Cohen 1960): 1 is full agreement, 0 that of chance.

    `counts` are cases by (first rater's category, second's). None if undefined: no cases, or both raters always give the
    same single category.
    """
    total = sum(counts.values())
    if total == 0:
        return None
    categories = {category for pair in counts for category in pair}
    observed = sum(count for (first, second), count in counts.items() if first == second) / total
    expected = sum(
        sum(count for (first, _), count in counts.items() if first == category)
        * sum(count for (_, second), count in counts.items() if second == category)
        for category in categories
    ) / (total * total)
    return None if expected == 1.0 else (observed - expected) / (1.0 - expected)


def difference(successes: int, trials: int, other_successes: int, other_trials: int) -> Interval:
    """The other proportion minus the first, with Newcombe's hybrid score interval (1998, method 10) from two Wilson ones."""
    return gap(wilson(successes, trials), wilson(other_successes, other_trials))


def paired_difference(pairs: Sequence[tuple[float, float]], *, z: float = NORMAL_95) -> Interval:
    """Mean of first minus second over pairs of values in [0, 1], such as outcomes of two policies at the same task, with the
    normal interval of the differences' deviation.

    Fewer than two pairs: the interval is [-1, 1].
    """
    differences = [first - second for first, second in pairs]
    mean = fmean(differences) if differences else 0.0
    if len(differences) < 2:
        return Interval(rate=mean, low=-1.0, high=1.0)
    half = z * stdev(differences) / sqrt(len(differences))
    return Interval(rate=mean, low=max(-1.0, mean - half), high=min(1.0, mean + half))


def standardized(
    strata: Mapping[str, tuple[int, int]], standard: Mapping[str, tuple[int, int]], *, z: float = NORMAL_95
) -> Interval:
    """Directly standardized proportion: the rate of each stratum, weighted by its share of the standard's trials.

    `strata`, `standard`: (successes, trials) by stratum. A stratum of the standard without own trials has the standard's
    rate and the interval [0, 1]. The interval combines the strata's Wilson intervals as `difference` does (MOVER, Zou and
    Donner 2008); for one stratum it is the Wilson interval. Without trials: rate 0, interval [0, 1].
    """
    total_trials = sum(trials for _, trials in standard.values())
    if not total_trials or not any(trials for _, trials in strata.values()):
        return Interval(rate=0.0, low=0.0, high=1.0)
    rate = below = above = 0.0
    for name, (successes, trials) in standard.items():
        won, played = strata.get(name, (0, 0))
        interval = wilson(won, played, z=z)
        stratum_rate = interval.rate if played else successes / max(1, trials)
        share = trials / total_trials
        rate += share * stratum_rate
        below += (share * (stratum_rate - interval.low)) ** 2
        above += (share * (interval.high - stratum_rate)) ** 2
    return Interval(rate=rate, low=max(0.0, rate - sqrt(below)), high=min(1.0, rate + sqrt(above)))


def gap(first: Interval, second: Interval) -> Interval:
    """The other rate minus the first, from the intervals of both (MOVER)."""
    rate = second.rate - first.rate
    below = sqrt((second.rate - second.low) ** 2 + (first.high - first.rate) ** 2)
    above = sqrt((second.high - second.rate) ** 2 + (first.rate - first.low) ** 2)
    return Interval(rate=rate, low=rate - below, high=rate + above)


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """Confusion matrix of a judge: numbers of episodes by true outcome and by verdict."""

    hits: int = 0
    """Successes judged successes (true positives)."""
    misses: int = 0
    """Successes judged failures (false negatives)."""
    rejections: int = 0
    """Failures judged failures (true negatives)."""
    false_alarms: int = 0
    """Failures judged successes (false positives)."""

    def with_one(self, *, success: bool, verdict: bool) -> "Confusion":
        """Add one episode: `success` is its true outcome, `verdict` what the judge decided."""
        name = ("hits" if verdict else "misses") if success else ("false_alarms" if verdict else "rejections")
        return msgspec.structs.replace(self, **{name: getattr(self, name) + 1})

    @property
    def successes(self) -> int:
        """Episodes whose true outcome is success."""
        return self.hits + self.misses

    @property
    def failures(self) -> int:
        """Episodes whose true outcome is failure."""
        return self.rejections + self.false_alarms

    @property
    def total(self) -> int:
        """All episodes."""
        return self.successes + self.failures


def of_successes(table: Confusion) -> Interval | None:
    """Share of the successes judged successes (sensitivity); None without successes."""
    return proportion(table.hits, table.successes)


def of_failures(table: Confusion) -> Interval | None:
    """Share of the failures judged failures (specificity); None without failures."""
    return proportion(table.rejections, table.failures)


def balanced_accuracy(table: Confusion) -> Interval | None:
    """Mean of both shares: .5 for a constant verdict. None if one class is missing.

    The interval is Newcombe's hybrid one (1998) for a sum of independent proportions, from two Wilson intervals.
    """
    if not table.successes or not table.failures:
        return None
    sensitivity, specificity = wilson(table.hits, table.successes), wilson(table.rejections, table.failures)
    rate = (sensitivity.rate + specificity.rate) / 2
    below = sqrt((sensitivity.rate - sensitivity.low) ** 2 + (specificity.rate - specificity.low) ** 2) / 2
    above = sqrt((sensitivity.high - sensitivity.rate) ** 2 + (specificity.high - specificity.rate) ** 2) / 2
    return Interval(rate=rate, low=rate - below, high=rate + above)


def plain_accuracy(table: Confusion) -> Interval | None:
    """Share of all episodes judged correctly; None for an empty table."""
    return proportion(table.hits + table.rejections, table.total)


def majority_baseline(table: Confusion) -> float | None:
    """Plain accuracy of always predicting the more frequent outcome; None for an empty table."""
    return max(table.successes, table.failures) / table.total if table.total else None


def rank_auc(successes: Sequence[float], failures: Sequence[float]) -> float | None:
    """Probability that a success has a higher score than a failure, ties counting half; None if one class is missing.

    The area under the ROC curve, as the Mann-Whitney statistic (Hanley and McNeil 1982). A constant score has .5.
    """
    if not successes or not failures:
        return None
    ordered = sorted(failures)
    halves = sum(bisect_left(ordered, score) + bisect_right(ordered, score) for score in successes)
    return halves / (2 * len(successes) * len(failures))


def calibration_error(predicted: Sequence[float], outcomes: Sequence[float], *, bins: int = 10) -> float:
    """Expected calibration error: mean distance of the mean prediction from the mean outcome of its bin (Guo et al. 2017, eq. 3).

    `predicted`: probabilities in [0, 1], in `bins` bins of equal width; a bin counts by its number of predictions.
    `outcomes`: in [0, 1], in the same order. 0 without predictions.
    """
    errors: dict[int, list[float]] = {}
    for probability, outcome in zip(predicted, outcomes, strict=True):
        errors.setdefault(min(int(probability * bins), bins - 1), []).append(probability - outcome)
    return fsum(abs(fsum(bin_errors)) for bin_errors in errors.values()) / max(1, len(predicted))
