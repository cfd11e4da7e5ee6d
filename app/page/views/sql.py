"""A box for SQL: queries of the run's read model."""

import msgspec

from hindcast.app.page.runs import PageQuery
from hindcast.storage.readmodel.database import VIEWS, columns_of
from hindcast.storage.readmodel.query_parts import position_of
from hindcast.storage.readmodel.sql import SAVED, QueryRefused, SqlAnswer, ask_sql
from hindcast.storage.readmodel.tables import TABLES

MOST_ROWS = 500
LIMIT_S = 5.0


class SqlPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's values."""

    query: str
    position: int
    """Position of the read model, which the tables have reached."""
    answer: SqlAnswer | None
    """None: nothing was asked, or it was refused."""
    refused: str
    saved: dict[str, str]
    """Queries by title."""
    tables: dict[str, list[str]]
    """Columns by table or view."""
    file: str
    """SQLite file of the read model, for other programs; empty: another database, or an archive."""


def sql(ask: PageQuery) -> SqlPage:
    """Answer the query in the address, by default the first saved one."""
    query = ask.query.get("query", "").strip() or SAVED[0].sql
    answer, refused = None, ""
    try:
        answer = ask_sql(ask.connection, query, limit=MOST_ROWS, seconds=LIMIT_S)
    except QueryRefused as error:
        refused = str(error)
    file = None if ask.runs is None else ask.runs.open(ask.run.name).model.file
    return SqlPage(
        query=query,
        position=position_of(ask.connection, None),
        answer=answer,
        refused=refused,
        saved={one.title: one.sql for one in SAVED},
        tables={view: [str(name) for name in columns_of(view)] for view in sorted(VIEWS)}
        | {
            str(name): [str(column.name) for column in table.columns]
            for name, table in sorted(TABLES.items())
        },
        file="" if file is None else str(file),
    )
