"""Detects forgetting: compares a family's best earlier success with its present one.

A stretch is the fewest consecutive policy versions that began `WATCHED` judged episodes of the family, counted back from the
newest. The newest stretch is compared with the best of the earlier ones; a family with fewer than two is left out.
The best of many is also high by chance: read the interval of the difference with that in mind.
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
    """Retention of every family with enough episodes, in the order of their names; from tallies by rising version."""
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
    """Retention of one family from its points by rising version; None: too few episodes."""
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
    """The stretches of a family, newest first; a remainder at the beginning that is too short is left out."""
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
