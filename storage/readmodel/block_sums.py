"""Sums over blocks of the log, so that totals of a long run are computed from few rows.

A block is `BLOCK` positions. Once the fold has passed its last position, the block's sums are written at that position, from
the rows that the block added. They are the same however the log was cut into transactions, and hold as of every later
position. A query as of position N uses the blocks that ended by then (`ended_by`), and reads later rows one by one.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, literal, null, select

from hindcast.storage.readmodel.row_operations import Values
from hindcast.storage.readmodel.rows import insert_rows
from hindcast.storage.readmodel.tables import (
    block_counts,
    block_episodes,
    block_metrics,
    block_tallies,
    episodes,
    judged,
    notices,
    steps,
    updates,
    verdicts,
)

BLOCK = 4096
"""Positions per block. Half a block is read row by row on average, some milliseconds; a run of a million events has 244 blocks."""
UPDATES = 16
"""Maximum number of updates whose metrics are one row."""
POLICY = "policy"

Kind = tuple[str | None, int | None, str | None, str | None]
"""Kind of episodes: origin, first version, environment, family."""


class EpisodeKind(NamedTuple):
    """Kind of episodes to count by."""

    judge: str | None
    """Judge with a verdict on them; None: all, whether or not they have a verdict."""
    outcome: str | None
    """Outcome of the judge's first verdict; None without a judge."""
    state: str
    origin: str | None
    environment: str | None
    family: str | None


class Applied(NamedTuple):
    """A metric of one update."""

    update: int
    metric: str
    value: float


def ended_by(position: int) -> int:
    """Last position of the newest block that ended by then; 0: none."""
    return position // BLOCK * BLOCK


def add_up(connection: Connection, *, after: int, reached: int) -> None:
    """Write the sums of each block that ended within (`after`, `reached`]; its rows must exist already."""
    for last in range(ended_by(after) + BLOCK, reached + 1, BLOCK):
        first = last - BLOCK
        for table, told in (
            (block_counts, _counts(connection, first, last)),
            (block_tallies, _tallies(connection, first, last)),
            (block_episodes, _episodes(connection, first, last)),
            (block_metrics, _metrics(connection, first, last)),
        ):
            rows = [{**row, "position": last} for row in told]
            if rows:
                insert_rows(connection, table, rows)


def within(table: Table, after: int, until: int) -> ColumnElement[bool]:
    """Rows of a recorded table within (`after`, `until`]."""
    return and_(table.c.position > after, table.c.position <= until)


def counted(after: int, until: int) -> list[Select[Any]]:
    """Statements that count rows of unbounded tables: table, kind, number."""
    taken = select(literal("steps"), literal(""), func.count()).where(within(steps, after, until))
    told = select(literal("notices"), notices.c.type, func.count()).where(within(notices, after, until))
    return [taken, told.group_by(notices.c.type)]


def totals(connection: Connection, position: int) -> dict[tuple[str, str], int]:
    """The counts of `counted` over the whole log up to a position: table and kind -> rows. Sorted."""
    kept = (
        select(block_counts.c.counted, block_counts.c.kind, func.sum(block_counts.c.number))
        .where(block_counts.c.position <= position)
        .group_by(block_counts.c.counted, block_counts.c.kind)
    )
    found: dict[tuple[str, str], int] = defaultdict(int)
    for statement in (kept, *counted(ended_by(position), position)):
        for table, kind, number in connection.execute(statement):
            found[table, kind] += int(number)  # PostgreSQL sums to decimals
    return dict(sorted(found.items()))


def first_said(connection: Connection, after: int, until: int) -> list[Any]:
    """Every judge's first verdicts within the stretch, in order: judge, kind of episode, outcome …"""
    first = and_(
        judged.c.episode == verdicts.c.episode,
        judged.c.judge == verdicts.c.judge,
        judged.c.valid_from == verdicts.c.position,
    )
    about = (judged.c.origin, judged.c.version_low, judged.c.environment, judged.c.family)
    said = (
        select(judged.c.judge, *about, judged.c.outcome, judged.c.reward, judged.c.version_high)
        .select_from(verdicts.join(judged, first))
        .where(within(verdicts, after, until))
        .order_by(verdicts.c.position)
    )
    # filtered here: with a condition on `judged`, SQLite would scan all of it instead of the stretch
    return [row for row in connection.execute(said) if row.origin is not None]


def kinds_changed(connection: Connection, after: int, until: int) -> dict[EpisodeKind, int]:
    """How many more episodes of each kind there are at `until` than at `after`; kinds without a change are left out."""
    begun = select(episodes.c.episode).where(episodes.c.valid_from > after, episodes.c.valid_from <= until)
    changed = begun.union(select(verdicts.c.episode).where(within(verdicts, after, until))).cte()
    kind = (episodes.c.state, episodes.c.origin, episodes.c.environment, episodes.c.family)
    found: dict[EpisodeKind, int] = defaultdict(int)
    for position, sign in ((after, -1), (until, 1)):
        # `+ 0`: search by the episode, not by an index on `valid_to`
        holds = and_(episodes.c.valid_from <= position, episodes.c.valid_to + 0 > position)
        rows = changed.join(episodes, and_(episodes.c.episode == changed.c.episode, holds))
        said = rows.join(judged, and_(judged.c.episode == changed.c.episode, judged.c.valid_from <= position))
        for statement in (
            select(null(), null(), *kind, func.count()).select_from(rows).group_by(*kind),
            select(judged.c.judge, judged.c.outcome, *kind, func.count())
            .select_from(said)
            .group_by(judged.c.judge, judged.c.outcome, *kind),
        ):
            for *about, number in connection.execute(statement):
                found[EpisodeKind(*about)] += sign * number
    return {one: number for one, number in found.items() if number}


def applied(connection: Connection, after: int, until: int) -> list[Applied]:
    """Numeric metrics of the policy's applied updates within the stretch, in order."""
    told = (
        select(updates.c.update_number, updates.c.metrics)
        .where(within(updates, after, until), updates.c.model == POLICY, updates.c.outcome == "applied")
        .order_by(updates.c.position)
    )
    return [
        Applied(number, metric, float(value))
        for number, text in connection.execute(told)
        for metric, value in json.loads(text).items()
        if value is not None
    ]


def _counts(connection: Connection, after: int, until: int) -> Iterable[Values]:
    for statement in counted(after, until):
        for table, kind, number in connection.execute(statement):
            yield {"counted": table, "kind": kind, "number": number}


def _tallies(connection: Connection, after: int, until: int) -> Iterable[Values]:
    """In the order of judge and kind. Sums of rewards are rounded once, so the order of rows does not matter."""
    said: dict[tuple[str | None, ...], list[Any]] = defaultdict(list)
    for row in first_said(connection, after, until):
        said[tuple(row[:5])].append(row)
    for place, about in enumerate(sorted(said, key=lambda key: [(part is not None, part) for part in key])):
        yield {
            "place": place,
            **dict(zip(("judge", "origin", "version_low", "environment", "family"), about, strict=True)),
            **_outcomes(said[about]),
        }


def _outcomes(rows: Sequence[Any]) -> Values:
    outcomes = [row.outcome for row in rows]
    decided = (row.reward for row in rows if row.outcome != "undecided" and row.reward is not None)
    return {
        **{outcome: outcomes.count(outcome) for outcome in ("success", "failure", "undecided")},
        "reward": fsum(decided),
        "mixed": sum(
            row.version_high is not None
            and row.version_low is not None
            and row.version_high != row.version_low
            for row in rows
        ),
    }


def _episodes(connection: Connection, after: int, until: int) -> Iterable[Values]:
    """In the order of the kinds, unknown values first."""
    changed = kinds_changed(connection, after, until)
    for place, kind in enumerate(sorted(changed, key=lambda one: [(part is not None, part) for part in one])):
        yield {"place": place, **kind._asdict(), "number": changed[kind]}


def _metrics(connection: Connection, after: int, until: int) -> Iterable[Values]:
    runs: dict[tuple[str, int], list[Applied]] = defaultdict(list)
    for one in applied(connection, after, until):
        runs[one.metric, one.update // UPDATES].append(one)
    for (metric, _), ones in runs.items():
        values = [one.value for one in ones]
        yield {
            "metric": metric,
            "first_update": ones[0].update,
            "last_update": ones[-1].update,
            "updates": len(ones),
            "low": min(values),
            "high": max(values),
            "last": values[-1],
        }
