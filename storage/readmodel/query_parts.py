"""Parts of queries: rows that hold as of a position, verdicts that count, rows as results, places in the log."""

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Subquery,
    Table,
    Text,
    and_,
    cast,
    func,
    literal,
    select,
)

from hindcast.core.errors import HindcastError, NoSuchPlace
from hindcast.core.rl.statistics import wilson
from hindcast.events.log.places import Noun, Place, describe_range
from hindcast.storage.readmodel.fold import read_cursor
from hindcast.storage.readmodel.tables import (
    adoptions,
    batch_episodes,
    batches,
    checkpoints,
    judged,
    notices,
    runs,
    updates,
    weights,
)


class Success(msgspec.Struct, frozen=True, kw_only=True):
    """How often a judge decided success; 95 % Wilson interval. Undecided verdicts are counted separately, never as failure."""

    judged: int
    """Successes and failures: n of the rate."""
    successes: int
    undecided: int
    rate: float
    low: float
    high: float


DISPUTED = "verdict.disputed"


OUTCOMES = ("success", "failure", "undecided")


Row = TypeVar("Row", bound=msgspec.Struct)


class NotInReadModel(HindcastError):
    """The requested thing does not exist, or did not yet at that position."""


def position_of(connection: Connection, as_of: int | None) -> int:
    """The position to query as of: `as_of`, by default that of the read model.

    Raises:
        NotInReadModel: the read model has not reached that position.
    """
    standing = read_cursor(connection)
    reached = standing.position if standing else 0
    if as_of is None:
        return reached
    if not 0 <= as_of <= reached:
        raise NotInReadModel(
            f"position {as_of} was asked for, but the read model knows positions 0 to {reached}"
        )
    return as_of


def holding(table: Table, position: int) -> ColumnElement[bool]:
    """The rows of a table that hold as of a position."""
    if table.info["versioned"]:
        return and_(table.c.valid_from <= position, table.c.valid_to > position)
    return table.c.position <= position


def also_holding(table: Table, position: int) -> ColumnElement[bool]:
    """`holding` of a versioned table, if another condition or the order selects the rows.

    `+ 0`: with an index on `valid_to`, SQLite would scan every row that holds or ended later.
    """
    return and_(table.c.valid_from <= position, table.c.valid_to + 0 > position)


def among(connection: Connection, column: ColumnElement[str], values: Collection[str]) -> ColumnElement[bool]:
    """Whether a column has one of any number of values: one parameter holds them all, whose number databases limit."""
    if connection.dialect.name == "sqlite":
        value_rows = func.json_each(json.dumps(list(values))).table_valued("value")
    else:
        value_rows = func.json_array_elements_text(literal(list(values), JSON)).table_valued("value")
    return column.in_(select(value_rows.c.value))


def by_holding(column: ColumnElement[str]) -> ColumnElement[str]:
    """A column to group by without its index, which would fetch every row that ever existed."""
    return cast(column, Text)


def of_this_run(statement: Select[Any], position: int) -> Select[Any]:
    """The row of `runs` as of a position: a fork's own, or before the fork its parent's."""
    return statement.where(holding(runs, position)).order_by(runs.c.started_position.desc()).limit(1)


def in_order(*columns: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """Columns to sort by, NULLs first in every database."""
    return [column.nulls_first() for column in columns]


def first_verdicts(position: int, judge: str) -> Subquery:
    """One judge's first verdict per episode, as of a position; evaluated only for the queried episodes."""
    return (
        select(judged.c.episode, judged.c.outcome, judged.c.reward)
        .where(judged.c.valid_from <= position, judged.c.judge == judge)
        .subquery()
    )


def sampling_from(connection: Connection, position: int) -> dict[str, int]:
    """Actor -> the version it adopted last."""
    last = (
        select(func.max(adoptions.c.position)).where(holding(adoptions, position)).group_by(adoptions.c.actor)
    )
    statement = select(adoptions.c.actor, adoptions.c.version).where(adoptions.c.position.in_(last))
    return dict(connection.execute(statement.order_by(adoptions.c.actor)).all())


def pauses_in_force(connection: Connection, position: int) -> dict[str, str]:
    """Author -> reason of each pause in force; the same fold as in `actors.curriculum.leases`."""
    statement = (
        select(notices.c.about, notices.c.detail)
        .where(
            holding(notices, position),
            notices.c.type == "control.requested",
            notices.c.about.in_(("pause", "resume")),
        )
        .order_by(notices.c.position)
    )
    reasons: dict[str, str] = {}
    for command, detail in connection.execute(statement):
        fact = json.loads(detail)
        if command == "pause":
            reasons[fact["author"]] = fact["reason"]
        else:
            reasons.pop(fact["arguments"].get("of", fact["author"]), None)
    return reasons


def count_disputed(connection: Connection, position: int) -> int:
    """Number of episodes with a disputed verdict."""
    statement = select(func.count(notices.c.about.distinct())).where(
        holding(notices, position), notices.c.type == DISPUTED
    )
    return connection.scalar(statement) or 0


def newest_ns(connection: Connection, table: Table, position: int) -> int | None:
    """When the last row of a recorded table was recorded, by its producer's clock."""
    last = (
        select(table.c.occurred_ns).where(holding(table, position)).order_by(table.c.position.desc()).limit(1)
    )
    return connection.scalar(last)


def count_rows(connection: Connection, table: Table, position: int) -> int:
    """Number of rows that hold."""
    return connection.scalar(select(func.count()).select_from(table).where(holding(table, position))) or 0


def count_trained(connection: Connection, position: int) -> int:
    """Number of distinct episodes planned to be trained on, without those only rehearsed."""
    statement = select(func.count(batch_episodes.c.episode.distinct())).where(
        # `+ 0`: use the index of episodes, in whose order equal ones are adjacent
        batch_episodes.c.position + 0 <= position,
        batch_episodes.c.trained,
    )
    return connection.scalar(statement) or 0


def count_by(
    connection: Connection,
    column: ColumnElement[str],
    table: Table,
    position: int,
    *where: ColumnElement[bool],
) -> dict[str, int]:
    """Number of rows that hold, by the value of a column."""
    statement = (
        select(column, func.count())
        .where(holding(table, position), *where)
        .group_by(column)
        .order_by(*in_order(column))
    )
    return dict(connection.execute(statement).all())


def success_of(outcomes: Mapping[str, int]) -> Success:
    """Counts of outcomes as a rate with its interval."""
    successes, failures = outcomes.get("success", 0), outcomes.get("failure", 0)
    interval = wilson(successes, successes + failures)
    return Success(
        judged=successes + failures,
        successes=successes,
        undecided=outcomes.get("undecided", 0),
        rate=interval.rate,
        low=interval.low,
        high=interval.high,
    )


def row_fields(row: RowMapping, kind: type[Row], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The columns of a row that a result has fields for."""
    return {name: row[name] for name in kind.__struct_fields__ if name in row and name not in without}


def answers(connection: Connection, statement: Select[Any], kind: type[Row]) -> list[Row]:
    """Rows as results of one kind."""
    return [kind(**row_fields(row, kind)) for row in connection.execute(statement).mappings()]


DEFAULT_JUDGE = "rules"


def training_judge(connection: Connection, *, as_of: int | None = None) -> str:
    """The judge whose verdicts are trained on."""
    position = position_of(connection, as_of)
    settings = connection.scalar(of_this_run(select(runs.c.settings), position))
    judges = json.loads(settings).get("judge", {}).get("judges", []) if settings else []
    return str(judges[0]) if judges else DEFAULT_JUDGE


POLICY = "policy"


def position_of_place(connection: Connection, place: Place) -> int:
    """Position of a place, as far as the read model knows the log.

    Raises:
        NoSuchPlace: no such event exists, or not yet; names those that exist.
        NotInReadModel: a position beyond the read model.
    """
    if place.noun == "position":
        return position_of(connection, place.number)
    standing = position_of(connection, None)
    positions = _landmarks(standing, place.noun).subquery()
    number = positions.c.number
    if place.number is None:
        statement = select(positions.c.position).order_by(number.desc(), positions.c.position.desc())
    else:
        statement = (
            select(positions.c.position).where(number == place.number).order_by(positions.c.position.desc())
        )
    position: int | None = connection.scalar(statement.limit(1))
    if position is None:
        lowest, highest = connection.execute(select(func.min(number), func.max(number))).one()
        raise NoSuchPlace(
            f"there is no {place} as of position {standing}: {describe_range(lowest, highest)}. Positions can be given, too."
        )
    return position


def _landmarks(standing: int, noun: Noun) -> Select[int, int]:
    """Number and position of everything of a kind."""

    def of(table: Table, number: ColumnElement[int], position: ColumnElement[int]) -> Select[int, int]:
        return select(number.label("number"), position.label("position")).where(holding(table, standing))

    match noun:
        case "update":
            applied = (updates.c.model == POLICY, updates.c.outcome == "applied")
            return of(updates, updates.c.update_number, updates.c.position).where(*applied)
        case "policy":
            return of(weights, weights.c.version, weights.c.valid_from).where(weights.c.model == POLICY)
        case "checkpoint":
            return of(checkpoints, checkpoints.c.update_number, checkpoints.c.position)
        case _:
            closing = (
                select(func.min(weights.c.valid_from))
                .where(
                    holding(weights, standing),
                    weights.c.model == POLICY,
                    weights.c.valid_from > batches.c.position,
                )
                .scalar_subquery()
            )
            return of(batches, batches.c.batch, closing).where(closing.is_not(None))
