"""Counts of outcomes by kind of episode: the basis of success curves and families.

Summed from blocks of the log (`storage.readmodel.block_sums`) and the verdicts since; for few versions, from an index of
verdicts. The caller adds up the kinds it needs.
"""

from collections.abc import Iterable, Sequence
from operator import add
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from hindcast.core.rl.statistics import Interval, standardized
from hindcast.storage.readmodel.block_sums import Kind, ended_by, first_said
from hindcast.storage.readmodel.query_parts import OUTCOMES, success_of
from hindcast.storage.readmodel.results import VersionSuccess
from hindcast.storage.readmodel.tables import block_tallies, judged

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
    kept = (
        select(*kind, *(block_tallies.c[name] for name in SUMS))
        .where(block_tallies.c.judge == judge, block_tallies.c.position <= position)
        .order_by(block_tallies.c.position, block_tallies.c.place)
    )
    told: dict[Kind, Sums] = {}
    for row in connection.execute(kept):
        _add(told, row[:4], row[4:])
    since = first_said(connection, ended_by(position), position)
    return _with(told, (row for row in since if row.judge == judge))


def tallies_of(
    connection: Connection, position: int, judge: str, *, origin: str, first: int, last: int
) -> Sequence[Tally]:
    """The same for versions `first` to `last`."""
    said = select(
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
    return _with({}, connection.execute(said.order_by(judged.c.valid_from)))


def _with(told: dict[Kind, Sums], said: Iterable[Any]) -> Sequence[Tally]:
    """The sums including these verdicts, in order; unknown values come first."""
    for _judge, origin, low, environment, family, outcome, reward, high in said:
        decided = outcome != "undecided" and reward is not None
        ones = (int(outcome == one) for one in OUTCOMES)
        mixed = low is not None and high is not None and low != high
        _add(told, (origin, low, environment, family), (*ones, reward if decided else 0.0, int(mixed)))
    return [Tally(kind[1], kind[0] or "", kind[2], kind[3], *told[kind]) for kind in sorted(told, key=_order)]


def _order(kind: Kind) -> tuple[str, int, str, str]:
    origin, version, environment, family = kind
    return origin or "", DEMONSTRATOR - 1 if version is None else version, environment or "", family or ""


def _add(told: dict[Any, Sums], kind: Any, sums: Sums) -> None:
    known = told.get(kind)
    told[kind] = sums if known is None else tuple(map(add, known, sums))


def outcomes_of(told: Iterable[Tally]) -> dict[str, int]:
    """Count of each outcome that occurs."""
    counts = dict.fromkeys(sorted(OUTCOMES), 0)
    for one in told:
        counts["success"] += one.success
        counts["failure"] += one.failure
        counts["undecided"] += one.undecided
    return {outcome: count for outcome, count in counts.items() if count}


Families = dict[str, tuple[int, int]]
"""Successes and judged episodes by `environment/family`."""


def families_of(rows: Iterable[Tally]) -> Families:
    """Sum of the judged episodes of each family."""
    found: Families = {}
    for one in rows:
        if one.version is not None and one.version >= 0:
            judged_episodes = int(one.success + one.failure)
            _add(found, f"{one.environment}/{one.family}", (int(one.success), judged_episodes))
    return found


def families_by_version(rows: Iterable[Tally], *, origin: str) -> dict[int, Families]:
    """Judged episodes of each family by the version that began them, versions in order."""
    parts: dict[int, list[Tally]] = {}
    for one in rows:
        if one.origin == origin and one.version is not None and one.version >= 0:
            parts.setdefault(one.version, []).append(one)
    return {version: families_of(parts[version]) for version in sorted(parts)}


def added(several: Iterable[Families]) -> Families:
    """The families of several versions or runs together."""
    found: Families = {}
    for one in several:
        for name, counts in one.items():
            _add(found, name, counts)
    return found


def curve(rows: Iterable[Tally]) -> list[VersionSuccess]:
    """One point per version and origin, of episodes that weights sampled, by rising version."""
    listed = list(rows)
    points: dict[tuple[int, str], Sums] = {}
    for one in listed:
        if one.version is not None and one.version >= 0:
            _add(points, (one.version, one.origin), one[4:])
    played = {origin: families_by_version(listed, origin=origin) for _, origin in points}
    standards = {origin: added(versions.values()) for origin, versions in played.items()}
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
    *counts, reward, mixed = sums
    success = success_of(dict(zip(OUTCOMES, counts, strict=True)))
    return VersionSuccess(
        version=version,
        origin=origin,
        success=success,
        weighted=weighted,
        mean_reward=reward / success.judged if success.judged else None,
        mixed=mixed,
    )
