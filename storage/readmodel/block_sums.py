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
        for table, sums in (
            (block_counts, _counts(connection, first, last)),
            (block_tallies, _tallies(connection, first, last)),
            (block_episodes, _episodes(connection, first, last)),
            (block_metrics, _metrics(connection, first, last)),
        ):
            rows = [{**row, "position": last} for row in sums]
            if rows:
                insert_rows(connection, table, rows)


def in_stretch(table: Table, after: int, until: int) -> ColumnElement[bool]:
    """Rows of a recorded table within (`after`, `until`]."""
    return and_(table.c.position > after, table.c.position <= until)


def row_counts(after: int, until: int) -> list[Select[Any]]:
    """Statements that count rows of unbounded tables: table, kind, number."""
    step_count = select(literal("steps"), literal(""), func.count()).where(in_stretch(steps, after, until))
    notice_counts = select(literal("notices"), notices.c.type, func.count()).where(
        in_stretch(notices, after, until)
    )
    return [step_count, notice_counts.group_by(notices.c.type)]


def totals(connection: Connection, position: int) -> dict[tuple[str, str], int]:
    """The counts of `counted` over the whole log up to a position: table and kind -> rows. Sorted."""
    block_rows = (
        select(block_counts.c.counted, block_counts.c.kind, func.sum(block_counts.c.number))
        .where(block_counts.c.position <= position)
        .group_by(block_counts.c.counted, block_counts.c.kind)
    )
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for statement in (block_rows, *row_counts(ended_by(position), position)):
        for table, kind, number in connection.execute(statement):
            counts[table, kind] += int(number)  # PostgreSQL sums to decimals
    return dict(sorted(counts.items()))


def first_verdicts_in(connection: Connection, after: int, until: int) -> list[Any]:
    """Every judge's first verdicts within the stretch, in order: judge, kind of episode, outcome …"""
    first = and_(
        judged.c.episode == verdicts.c.episode,
        judged.c.judge == verdicts.c.judge,
        judged.c.valid_from == verdicts.c.position,
    )
    about = (judged.c.origin, judged.c.version_low, judged.c.environment, judged.c.family)
    statement = (
        select(judged.c.judge, *about, judged.c.outcome, judged.c.reward, judged.c.version_high)
        .select_from(verdicts.join(judged, first))
        .where(in_stretch(verdicts, after, until))
        .order_by(verdicts.c.position)
    )
    # filtered here: with a condition on `judged`, SQLite would scan all of it instead of the stretch
    return [row for row in connection.execute(statement) if row.origin is not None]


def kinds_changed(connection: Connection, after: int, until: int) -> dict[EpisodeKind, int]:
    """How many more episodes of each kind there are at `until` than at `after`; kinds without a change are left out."""
    new_episodes = select(episodes.c.episode).where(
        episodes.c.valid_from > after, episodes.c.valid_from <= until
    )
    changed = new_episodes.union(select(verdicts.c.episode).where(in_stretch(verdicts, after, until))).cte()
    kind = (episodes.c.state, episodes.c.origin, episodes.c.environment, episodes.c.family)
    changes: dict[EpisodeKind, int] = defaultdict(int)
    for position, sign in ((after, -1), (until, 1)):
        # `+ 0`: search by the episode, not by an index on `valid_to`
        holds = and_(episodes.c.valid_from <= position, episodes.c.valid_to + 0 > position)
        rows = changed.join(episodes, and_(episodes.c.episode == changed.c.episode, holds))
        judged_rows = rows.join(
            judged, and_(judged.c.episode == changed.c.episode, judged.c.valid_from <= position)
        )
        for statement in (
            select(null(), null(), *kind, func.count()).select_from(rows).group_by(*kind),
            select(judged.c.judge, judged.c.outcome, *kind, func.count())
            .select_from(judged_rows)
            .group_by(judged.c.judge, judged.c.outcome, *kind),
        ):
            for *about, number in connection.execute(statement):
                changes[EpisodeKind(*about)] += sign * number
    return {changed_kind: number for changed_kind, number in changes.items() if number}


def applied_metrics(connection: Connection, after: int, until: int) -> list[Applied]:
    """Numeric metrics of the policy's applied updates within the stretch, in order."""
    statement = (
        select(updates.c.update_number, updates.c.metrics)
        .where(in_stretch(updates, after, until), updates.c.model == POLICY, updates.c.outcome == "applied")
        .order_by(updates.c.position)
    )
    return [
        Applied(number, metric, float(value))
        for number, text in connection.execute(statement)
        for metric, value in json.loads(text).items()
        if value is not None
    ]


def _counts(connection: Connection, after: int, until: int) -> Iterable[Values]:
    for statement in row_counts(after, until):
        for table, kind, number in connection.execute(statement):
            yield {"counted": table, "kind": kind, "number": number}


def _tallies(connection: Connection, after: int, until: int) -> Iterable[Values]:
    """In the order of judge and kind. Sums of rewards are rounded once, so the order of rows does not matter."""
    verdicts_by_kind: dict[tuple[str | None, ...], list[Any]] = defaultdict(list)
    for row in first_verdicts_in(connection, after, until):
        verdicts_by_kind[tuple(row[:5])].append(row)
    for index, about in enumerate(
        sorted(verdicts_by_kind, key=lambda key: [(value is not None, value) for value in key])
    ):
        yield {
            "place": index,
            **dict(zip(("judge", "origin", "version_low", "environment", "family"), about, strict=True)),
            **_outcomes(verdicts_by_kind[about]),
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
    for index, kind in enumerate(
        sorted(changed, key=lambda changed_kind: [(value is not None, value) for value in changed_kind])
    ):
        yield {"place": index, **kind._asdict(), "number": changed[kind]}


def _metrics(connection: Connection, after: int, until: int) -> Iterable[Values]:
    runs: dict[tuple[str, int], list[Applied]] = defaultdict(list)
    for point in applied_metrics(connection, after, until):
        runs[point.metric, point.update // UPDATES].append(point)
    for (metric, _), ones in runs.items():
        values = [point.value for point in ones]
        yield {
            "metric": metric,
            "first_update": ones[0].update,
            "last_update": ones[-1].update,
            "updates": len(ones),
            "low": min(values),
            "high": max(values),
            "last": values[-1],
        }
