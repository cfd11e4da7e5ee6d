"""Whether what was mastered is being forgotten: a family's best earlier success beside its present one.

A stretch is the fewest consecutive policy versions that began `WATCHED` judged episodes of the family, counted back from the
newest; the best of the earlier stretches is what the newest is compared with. A family of fewer than two says nothing.
The best of many is high by luck, too: read the interval of the difference with that in mind.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hindcast.core.rl.statistics import difference, wilson
from hindcast.storage.readmodel.outcome_counts import Tally
from hindcast.storage.readmodel.results import FamilyRetention, Stretch

WATCHED = 30
ONLINE = "online"


class FamilyPoint(NamedTuple):
    """Judged online episodes of a family that one policy version began."""

    version: int
    successes: int
    judged: int


def retention(told: Iterable[Tally]) -> tuple[FamilyRetention, ...]:
    """Of every family that says something, in the order of their names; from tallies by rising version."""
    points: dict[str, list[FamilyPoint]] = defaultdict(list)
    for one in told:
        judged = int(one.success + one.failure)
        if one.origin == ONLINE and one.version is not None and one.version >= 0 and judged:
            points[f"{one.environment}/{one.family}"].append(
                FamilyPoint(one.version, int(one.success), judged)
            )
    found = (retained(family, points[family]) for family in sorted(points))
    return tuple(one for one in found if one is not None)


def retained(family: str, points: Sequence[FamilyPoint]) -> FamilyRetention | None:
    """What the points of one family say, by rising version; None: there are too few episodes."""
    found = stretches(points)
    if len(found) < 2:
        return None
    newest, *earlier = found
    best = max(earlier, key=lambda one: (one.rate, one.last_version))
    change = difference(best.successes, best.judged, newest.successes, newest.judged)
    return FamilyRetention(
        family=family, best=best, present=newest, change=(change.rate, change.low, change.high)
    )


def stretches(points: Sequence[FamilyPoint]) -> list[Stretch]:
    """The stretches of a family, the newest first; what is left at the beginning is too little for one."""
    found: list[Stretch] = []
    held: list[FamilyPoint] = []
    judged = 0
    for point in reversed(points):
        held.append(point)
        judged += point.judged
        if judged >= WATCHED:
            found.append(_stretch(held))
            held, judged = [], 0
    return found


def _stretch(held: Sequence[FamilyPoint]) -> Stretch:
    successes, judged = sum(one.successes for one in held), sum(one.judged for one in held)
    band = wilson(successes, judged)
    return Stretch(
        first_version=held[-1].version,
        last_version=held[0].version,
        judged=judged,
        successes=successes,
        rate=band.rate,
        low=band.low,
        high=band.high,
    )
