"""Counts of outcomes by kind of episode: the basis of success curves and families.

Summed from blocks of the log (`storage.readmodel.block_sums`) and the verdicts since; for few versions, from an index of
verdicts. The caller adds up the kinds it needs.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import add
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, select

from hindcast.core.rl.statistics import Interval, difference, standardized, wilson
from hindcast.events.catalogue.curriculum import IMPORTED, ONLINE
from hindcast.storage.readmodel.block_sums import Kind, ended_by, first_verdicts_in
from hindcast.storage.readmodel.query_parts import (
    OUTCOMES,
    Success,
    position_of,
    success_of,
    training_judge,
)
from hindcast.storage.readmodel.tables import (
    block_tallies,
    judged,
)


class VersionSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """Success of the episodes that a policy version began."""

    version: int
    """Lowest version that sampled a token of the episode."""
    origin: str
    success: Success
    """As played: with the families in the shares that this version met."""
    weighted: Interval
    """Every family weighted by its share of the run's judged episodes of this origin; 95 % interval. A family that the version
    did not play has the run's rate and the interval [0, 1].
    """
    mean_reward: float | None
    mixed: int
    """Episodes in which a newer version took over on the way."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Success of the online episodes that consecutive policy versions began; 95 % Wilson interval."""

    first_version: int
    last_version: int
    judged: int
    successes: int
    rate: float
    low: float
    high: float


class FamilyRetention(msgspec.Struct, frozen=True, kw_only=True):
    """A family's best earlier success and its present one."""

    family: str
    best: Stretch
    """Best stretch before the present one."""
    present: Stretch
    change: tuple[float, float, float]
    """Present minus best, and its 95 % interval."""


SUMS = ("success", "failure", "undecided", "reward", "mixed")
"""Names of the counted columns."""


Sums = tuple[Any, ...]
"""Values of the `SUMS` columns."""


DEMONSTRATOR = -1
"""Version of episodes that no weights sampled."""


class Tally(NamedTuple):
    """Episodes of one kind by outcome of a judge's first verdicts."""

    version: int | None
    """Version that began them."""
    origin: str
    environment: str | None
    family: str | None
    success: int
    failure: int
    undecided: int
    reward: float
    """Sum of the decided ones' rewards."""
    mixed: int
    """Episodes in which a newer version took over on the way."""


def tallies(connection: Connection, position: int, judge: str) -> Sequence[Tally]:
    """All verdicts that count as of a position, in the order of origin, version and family."""
    kind = (block_tallies.c[name] for name in ("origin", "version_low", "environment", "family"))
    block_rows = (
        select(*kind, *(block_tallies.c[name] for name in SUMS))
        .where(block_tallies.c.judge == judge, block_tallies.c.position <= position)
        .order_by(block_tallies.c.position, block_tallies.c.place)
    )
    sums: dict[Kind, Sums] = {}
    # all rows at once: thousands fetched one by one take twice the time
    for row in connection.execute(block_rows).all():
        _add(sums, row[:4], row[4:])
    later_verdicts = first_verdicts_in(connection, ended_by(position), position)
    return _tallies_with(sums, (row for row in later_verdicts if row.judge == judge))


def training_tallies(connection: Connection, *, as_of: int | None = None) -> Sequence[Tally]:
    """All verdicts of the judge that training uses, as `tallies` gives them; `as_of` None: as of now."""
    position = position_of(connection, as_of)
    return tallies(connection, position, training_judge(connection, as_of=position))


def tallies_of(
    connection: Connection, position: int, judge: str, *, origin: str, first: int, last: int
) -> Sequence[Tally]:
    """The same for versions `first` to `last`."""
    statement = select(
        judged.c.judge,
        judged.c.origin,
        judged.c.version_low,
        judged.c.environment,
        judged.c.family,
        judged.c.outcome,
        judged.c.reward,
        judged.c.version_high,
    ).where(
        judged.c.judge == judge,
        judged.c.origin == origin,
        judged.c.version_low.between(first, last),
        judged.c.valid_from <= position,
    )
    return _tallies_with({}, connection.execute(statement.order_by(judged.c.valid_from)))


def _tallies_with(sums_by_kind: dict[Kind, Sums], verdict_rows: Iterable[Any]) -> Sequence[Tally]:
    """The sums including these verdicts, in order; unknown values come first."""
    for _judge, origin, low, environment, family, outcome, reward, high in verdict_rows:
        decided = outcome != "undecided" and reward is not None
        ones = (int(outcome == name) for name in OUTCOMES)
        mixed = low is not None and high is not None and low != high
        _add(
            sums_by_kind, (origin, low, environment, family), (*ones, reward if decided else 0.0, int(mixed))
        )
    return [
        Tally(kind[1], kind[0] or "", kind[2], kind[3], *sums_by_kind[kind])
        for kind in sorted(sums_by_kind, key=_order)
    ]


def _order(kind: Kind) -> tuple[str, int, str, str]:
    origin, version, environment, family = kind
    return origin or "", DEMONSTRATOR - 1 if version is None else version, environment or "", family or ""


def _add(sums_by_kind: dict[Any, Sums], kind: Any, sums: Sums) -> None:
    earlier = sums_by_kind.get(kind)
    sums_by_kind[kind] = sums if earlier is None else tuple(map(add, earlier, sums))


def outcomes_of(rows: Iterable[Tally]) -> dict[str, int]:
    """Count of each outcome that occurs."""
    counts = dict.fromkeys(sorted(OUTCOMES), 0)
    for tally in rows:
        counts["success"] += tally.success
        counts["failure"] += tally.failure
        counts["undecided"] += tally.undecided
    return {outcome: count for outcome, count in counts.items() if count}


Families = dict[str, tuple[int, int]]
"""Successes and judged episodes by `environment/family`."""


def training_origin(rows: Iterable[Tally]) -> str:
    """Origin of the episodes that a run's policy versions are measured by: `imported` in a run of another system."""
    origins = {tally.origin for tally in rows}
    return IMPORTED if IMPORTED in origins and ONLINE not in origins else ONLINE


def families_by_version(rows: Iterable[Tally], *, origin: str) -> dict[int, Families]:
    """Judged episodes of each family by the version that began them, versions in order."""
    families_of: dict[int, Families] = {}
    for tally in rows:
        if tally.origin == origin and tally.version is not None and tally.version >= 0:
            families = families_of.setdefault(tally.version, {})
            name = f"{tally.environment}/{tally.family}"
            successes, judged = families.get(name, (0, 0))
            families[name] = successes + tally.success, judged + tally.success + tally.failure
    return {version: families_of[version] for version in sorted(families_of)}


def merge_families(several: Iterable[Families]) -> Families:
    """The families of several versions or runs together."""
    merged: Families = {}
    for families in several:
        for name, (successes, judged_episodes) in families.items():
            earlier = merged.get(name)
            merged[name] = (
                (successes, judged_episodes)
                if earlier is None
                else (earlier[0] + successes, earlier[1] + judged_episodes)
            )
    return merged


def curve(rows: Iterable[Tally]) -> list[VersionSuccess]:
    """One point per version and origin, of episodes that weights sampled, by rising version."""
    all_rows = list(rows)
    points: dict[tuple[int, str], Sums] = {}
    for tally in all_rows:
        if tally.version is not None and tally.version >= 0:
            _add(points, (tally.version, tally.origin), tally[4:])
    origins = {origin for _, origin in points}
    played = {origin: families_by_version(all_rows, origin=origin) for origin in origins}
    standards = {origin: merge_families(versions.values()) for origin, versions in played.items()}
    return [
        _point(
            version,
            origin,
            points[version, origin],
            standardized(played[origin][version], standards[origin]),
        )
        for version, origin in sorted(points)
    ]


def _point(version: int, origin: str, sums: Sums, weighted: Interval) -> VersionSuccess:
    successes, failures, undecided, reward, mixed = sums
    success = success_of({"success": successes, "failure": failures, "undecided": undecided})
    return VersionSuccess(
        version=version,
        origin=origin,
        success=success,
        weighted=weighted,
        mean_reward=reward / success.judged if success.judged else None,
        mixed=mixed,
    )


def success_by_version(
    connection: Connection,
    *,
    as_of: int | None = None,
    origin: str | None = "online",
    judge: str | None = None,
) -> list[VersionSuccess]:
    """The success curve: one point per policy version and origin. `origin` None: all of them, separately.

    In a run of another system, `online` means its imported episodes.
    """
    rows = (
        tallies(connection, position_of(connection, as_of), judge)
        if judge
        else training_tallies(connection, as_of=as_of)
    )
    wanted_origin = training_origin(rows) if origin == ONLINE else origin
    return curve(tally for tally in rows if wanted_origin in (None, tally.origin))


WATCHED = 30


class FamilyPoint(NamedTuple):
    """Judged online episodes of a family that one policy version began."""

    version: int
    successes: int
    judged: int


def retention(rows: Sequence[Tally]) -> tuple[FamilyRetention, ...]:
    """Retention of every family with enough episodes, in the order of their names; from tallies by rising version."""
    points: dict[str, list[FamilyPoint]] = defaultdict(list)
    origin = training_origin(rows)
    for tally in rows:
        judged = int(tally.success + tally.failure)
        if tally.origin == origin and tally.version is not None and tally.version >= 0 and judged:
            points[f"{tally.environment}/{tally.family}"].append(
                FamilyPoint(tally.version, int(tally.success), judged)
            )
    retentions = (retained(family, points[family]) for family in sorted(points))
    return tuple(tally for tally in retentions if tally is not None)


def retained(family: str, points: Sequence[FamilyPoint]) -> FamilyRetention | None:
    """Retention of one family from its points by rising version; None: too few episodes."""
    of_family = stretches(points)
    if len(of_family) < 2:
        return None
    newest, *earlier = of_family
    best = max(earlier, key=lambda stretch: (stretch.rate, stretch.last_version))
    change = difference(best.successes, best.judged, newest.successes, newest.judged)
    return FamilyRetention(
        family=family, best=best, present=newest, change=(change.rate, change.low, change.high)
    )


def stretches(points: Sequence[FamilyPoint]) -> list[Stretch]:
    """The stretches of a family, newest first; a remainder at the beginning that is too short is left out."""
    complete: list[Stretch] = []
    collected: list[FamilyPoint] = []
    judged = 0
    for point in reversed(points):
        collected.append(point)
        judged += point.judged
        if judged >= WATCHED:
            complete.append(_stretch(collected))
            collected, judged = [], 0
    return complete


def _stretch(points: Sequence[FamilyPoint]) -> Stretch:
    successes, judged = sum(point.successes for point in points), sum(point.judged for point in points)
    band = wilson(successes, judged)
    return Stretch(
        first_version=points[-1].version,
        last_version=points[0].version,
        judged=judged,
        successes=successes,
        rate=band.rate,
        low=band.low,
        high=band.high,
    )
