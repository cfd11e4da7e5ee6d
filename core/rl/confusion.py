"""How well somebody tells successes from failures, beside always giving the commoner answer."""

from math import sqrt

import msgspec

from hindcast.core.rl.statistics import Interval, proportion, wilson


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """Episodes by what is true of them and what was said of them."""

    hits: int = 0
    """Successes called so."""
    misses: int = 0
    """Successes called failures."""
    rejections: int = 0
    """Failures called so."""
    false_alarms: int = 0
    """Failures called successes."""

    def with_one(self, *, success: bool, said: bool) -> "Confusion":
        """The table with one episode more."""
        name = ("hits" if said else "misses") if success else ("false_alarms" if said else "rejections")
        return msgspec.structs.replace(self, **{name: getattr(self, name) + 1})

    @property
    def successes(self) -> int:
        """True ones."""
        return self.hits + self.misses

    @property
    def failures(self) -> int:
        """True ones."""
        return self.rejections + self.false_alarms

    @property
    def total(self) -> int:
        """Of both."""
        return self.successes + self.failures


def of_successes(table: Confusion) -> Interval | None:
    """Share of the successes that were called so; None where there are none."""
    return proportion(table.hits, table.successes)


def of_failures(table: Confusion) -> Interval | None:
    """Share of the failures that were called so; None where there are none."""
    return proportion(table.rejections, table.failures)


def balanced_accuracy(table: Confusion) -> Interval | None:
    """The mean of both shares: .5 for whoever always says the same. None where one class is missing.

    The interval is that of Newcombe's hybrid method (1998) for a sum of independent proportions, from two Wilson ones.
    """
    if not table.successes or not table.failures:
        return None
    one, other = wilson(table.hits, table.successes), wilson(table.rejections, table.failures)
    rate = (one.rate + other.rate) / 2
    below = sqrt((one.rate - one.low) ** 2 + (other.rate - other.low) ** 2) / 2
    above = sqrt((one.high - one.rate) ** 2 + (other.high - other.rate) ** 2) / 2
    return Interval(rate=rate, low=rate - below, high=rate + above)


def plain_accuracy(table: Confusion) -> Interval | None:
    """Share of all that were called rightly; None of an empty table."""
    return proportion(table.hits + table.rejections, table.total)


def majority_baseline(table: Confusion) -> float | None:
    """Plain accuracy of always giving the commoner answer; None of an empty table. Balanced, it is always .5."""
    return max(table.successes, table.failures) / table.total if table.total else None
