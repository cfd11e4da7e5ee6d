"""How often episodes of each kind came to which outcome: what success curves and families are counted from.

One look at one index; whoever asks adds up what belongs together.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, case, func, select

from storage.readmodel.answers import VersionSuccess
from storage.readmodel.asking import OUTCOMES, success_of
from storage.readmodel.tables import judged


class Tally(NamedTuple):
    """Episodes of one kind, by what a judge's first verdicts on them say."""

    version: int | None
    """That began them."""
    origin: str
    environment: str | None
    family: str | None
    success: int
    failure: int
    undecided: int
    reward: float
    """Of the decided ones together."""
    mixed: int
    """In which a newer version took over on the way."""


def tallies(connection: Connection, position: int, judge: str) -> Sequence[Tally]:
    """All verdicts that count as of a position, in the order of origin, version and family."""
    kind = (judged.c.origin, judged.c.version_low, judged.c.environment, judged.c.family)

    def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((condition, 1), else_=0))

    decided = case((judged.c.outcome != "undecided", judged.c.reward), else_=0.0)
    statement = (
        select(
            judged.c.version_low,
            judged.c.origin,
            judged.c.environment,
            judged.c.family,
            *(count(judged.c.outcome == one) for one in OUTCOMES),
            func.coalesce(func.sum(decided), 0.0),
            count(judged.c.version_high != judged.c.version_low),
        )
        .where(judged.c.judge == judge, judged.c.valid_from <= position, judged.c.origin.is_not(None))
        .group_by(*kind)
        .order_by(*kind)
    )
    return [Tally(*row) for row in connection.execute(statement).all()]


def outcomes_of(told: Iterable[Tally]) -> dict[str, int]:
    """How often each outcome was said, of those that were."""
    counts = dict.fromkeys(sorted(OUTCOMES), 0)
    for one in told:
        for outcome in OUTCOMES:
            counts[outcome] += getattr(one, outcome)
    return {outcome: int(count) for outcome, count in counts.items() if count}


def curve(told: Iterable[Tally]) -> list[VersionSuccess]:
    """One point per version and origin, of those that weights sampled, by rising version."""
    points: dict[tuple[int, str], list[Tally]] = defaultdict(list)
    for one in told:
        if one.version is not None and one.version >= 0:
            points[one.version, one.origin].append(one)
    return [_point(version, origin, points[version, origin]) for version, origin in sorted(points)]


def _point(version: int, origin: str, told: Sequence[Tally]) -> VersionSuccess:
    counts = {outcome: int(sum(getattr(one, outcome) for one in told)) for outcome in OUTCOMES}
    success = success_of(counts)
    return VersionSuccess(
        version=version,
        origin=origin,
        success=success,
        mean_reward=sum(one.reward for one in told) / success.judged if success.judged else None,
        mixed=int(sum(one.mixed for one in told)),
    )
