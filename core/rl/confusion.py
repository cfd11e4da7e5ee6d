"""Confusion matrix of a judge against the true outcomes, its accuracies, and the majority baseline."""

from math import sqrt

import msgspec

from hindcast.core.rl.statistics import Interval, proportion, wilson


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of episodes by true outcome and by verdict."""

    hits: int = 0
    """Successes judged successes (true positives)."""
    misses: int = 0
    """Successes judged failures (false negatives)."""
    rejections: int = 0
    """Failures judged failures (true negatives)."""
    false_alarms: int = 0
    """Failures judged successes (false positives)."""

    def with_one(self, *, success: bool, said: bool) -> "Confusion":
        """Add one episode: `success` is its true outcome, `said` the verdict."""
        name = ("hits" if said else "misses") if success else ("false_alarms" if said else "rejections")
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
    one, other = wilson(table.hits, table.successes), wilson(table.rejections, table.failures)
    rate = (one.rate + other.rate) / 2
    below = sqrt((one.rate - one.low) ** 2 + (other.rate - other.low) ** 2) / 2
    above = sqrt((one.high - one.rate) ** 2 + (other.high - other.rate) ** 2) / 2
    return Interval(rate=rate, low=rate - below, high=rate + above)


def plain_accuracy(table: Confusion) -> Interval | None:
    """Share of all episodes judged correctly; None for an empty table."""
    return proportion(table.hits + table.rejections, table.total)


def majority_baseline(table: Confusion) -> float | None:
    """Plain accuracy of always predicting the more frequent outcome; None for an empty table."""
    return max(table.successes, table.failures) / table.total if table.total else None
