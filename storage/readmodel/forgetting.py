"""Whether what was mastered is being forgotten: a family's best earlier success beside its present one.

A stretch is the fewest consecutive policy versions that began `WATCHED` judged episodes of the family, counted back from the
newest; the best of the earlier stretches is what the newest is compared with. A family of fewer than two says nothing.
The best of many is high by luck, too: read the interval of the difference with that in mind.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, case, func, select

from core.statistics import difference, wilson
from storage.readmodel.answers import FamilyRetention, Stretch
from storage.readmodel.asking import first_verdicts, holding, in_order
from storage.readmodel.tables import episodes

WATCHED = 30


class Point(NamedTuple):
    """Judged online episodes of a family that one policy version began."""

    version: int
    successes: int
    judged: int


def retention(connection: Connection, position: int, judge: str) -> tuple[FamilyRetention, ...]:
    """Of every family that says something, in the order of their names."""
    said = first_verdicts(position, judge)
    statement = (
        select(
            episodes.c.environment,
            episodes.c.family,
            episodes.c.version_low,
            func.sum(case((said.c.outcome == "success", 1), else_=0)).label("successes"),
            func.count().label("judged"),
        )
        .join(said, said.c.episode == episodes.c.episode)
        .where(
            holding(episodes, position),
            episodes.c.origin == "online",
            episodes.c.version_low >= 0,
            said.c.outcome != "undecided",
        )
        .group_by(episodes.c.environment, episodes.c.family, episodes.c.version_low)
        .order_by(*in_order(episodes.c.environment, episodes.c.family, episodes.c.version_low))
    )
    points: dict[str, list[Point]] = defaultdict(list)
    for row in connection.execute(statement).mappings():
        name = f"{row['environment']}/{row['family']}"
        points[name].append(Point(row["version_low"], int(row["successes"]), int(row["judged"])))
    found = (retained(family, of_family) for family, of_family in points.items())
    return tuple(one for one in found if one is not None)


def retained(family: str, points: Sequence[Point]) -> FamilyRetention | None:
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


def stretches(points: Sequence[Point]) -> list[Stretch]:
    """The stretches of a family, the newest first; what is left at the beginning is too little for one."""
    found: list[Stretch] = []
    held: list[Point] = []
    for point in reversed(points):
        held.append(point)
        if sum(one.judged for one in held) >= WATCHED:
            found.append(_stretch(held))
            held = []
    return found


def _stretch(held: Sequence[Point]) -> Stretch:
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
