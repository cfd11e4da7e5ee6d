"""A query of the user's own: it reads this run's tables, changes nothing, and ends in time.

SQLite gets an authorizer, since `query_only` could be switched off by the query, and an attached file could be any. PostgreSQL
has the read-only transaction of `ReadModel.reading`; one statement cannot end it and begin another.
"""

import sqlite3
import time
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection

from hindcast.core.errors import HindcastError

READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
"""What SQLite may do in a query."""
BEGINNINGS = ("select", "with", "values")
STEPS = 10_000
"""SQLite's virtual instructions between two looks at the clock."""
TABLES = "The tables are described in docs/read-model.md"


class QueryRefused(HindcastError):
    """The query cannot be answered: it is no query, the database refuses it, or it takes too long."""


class SavedQuery(NamedTuple):
    """A question that many have."""

    title: str
    sql: str


SAVED = (
    SavedQuery(
        "success by family",
        "SELECT environment || '/' || family AS family, count(*) AS judged,\n"
        "       round(avg(CASE WHEN outcome = 'success' THEN 1.0 ELSE 0.0 END), 3) AS success\n"
        "FROM judged_current\n"
        "WHERE origin = 'online' AND outcome <> 'undecided'\n"
        "GROUP BY 1 ORDER BY success",
    ),
    SavedQuery(
        "failed actions in episodes that succeeded",
        "SELECT s.episode, s.step, s.action, s.result, s.detail\n"
        "FROM steps s JOIN judged_current j ON j.episode = s.episode\n"
        "WHERE j.outcome = 'success' AND s.result NOT IN ('ok', 'exit')",
    ),
    SavedQuery(
        "longest episodes",
        "SELECT episode, environment || '/' || family AS family, steps, duration_ms, reason\n"
        "FROM episodes_current WHERE state = 'ended' ORDER BY duration_ms DESC",
    ),
    SavedQuery(
        "why episodes were lost",
        "SELECT reason, detail, count(*) AS episodes FROM episodes_current\n"
        "WHERE state = 'abandoned' GROUP BY 1, 2 ORDER BY 3 DESC",
    ),
    SavedQuery(
        "updates",
        "SELECT update_number, outcome, position FROM updates WHERE model = 'policy' ORDER BY update_number DESC",
    ),
)


class SqlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a query."""

    columns: tuple[str, ...]
    """Their names; PostgreSQL does not give them without a row."""
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool
    """Whether there are more rows."""
    seconds: float


def ask_sql(connection: Connection, query: str, *, limit: int, seconds: float) -> SqlAnswer:
    """Answer one query with at most `limit` rows, within `seconds`. `connection`: of `ReadModel.reading`.

    Raises:
        QueryRefused: with the database's words.
    """
    query = query.strip().rstrip(";")
    first = query.split(None, 1)[0].lower() if query else ""
    if first not in BEGINNINGS:
        raise QueryRefused(
            f"a query begins with SELECT, WITH or VALUES, this one with {first[:40] or 'nothing'!r}. {TABLES}"
        )
    began = time.monotonic()
    try:
        if connection.dialect.name == "sqlite":
            columns, rows = _ask_sqlite(connection, query, limit=limit, deadline=began + seconds)
        else:
            columns, rows = _ask_postgres(connection, query, limit=limit, seconds=seconds)
    except HindcastError:
        raise
    except Exception as error:  # each driver has its own
        late = time.monotonic() - began >= seconds
        reason = f"it takes longer than {seconds:g} s" if late else " ".join(str(error).split())
        raise QueryRefused(f"{reason}. {TABLES}") from error
    return SqlAnswer(
        columns=columns,
        rows=tuple(tuple(_json_value(value) for value in row) for row in rows[:limit]),
        is_cut=len(rows) > limit,
        seconds=time.monotonic() - began,
    )


def _ask_sqlite(
    connection: Connection, query: str, *, limit: int, deadline: float
) -> tuple[tuple[str, ...], list[Any]]:
    driver: Any = connection.connection.driver_connection
    driver.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY)
    driver.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    try:
        with closing(driver.execute(query)) as cursor:
            return tuple(column[0] for column in cursor.description), cursor.fetchmany(limit + 1)
    finally:
        driver.set_progress_handler(None, 0)
        driver.set_authorizer(None)


def _ask_postgres(
    connection: Connection, query: str, *, limit: int, seconds: float
) -> tuple[tuple[str, ...], list[Any]]:
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(1000 * seconds))}")
    driver: Any = connection.connection.driver_connection
    # a stream is one statement by the protocol, and is not read beyond the limit
    with driver.cursor() as cursor, closing(cursor.stream(query)) as stream:
        rows = list(islice(stream, limit + 1))
        return tuple(column.name for column in cursor.description or ()), rows


def _json_value(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
