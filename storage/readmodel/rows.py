"""Inserts many rows of one table at once.

For SQLite, one fixed statement with tuples: SQLAlchemy's work per row costs more than storing it. For other databases,
SQLAlchemy's insert of the same values. A column that a row does not name is NULL.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, insert

from hindcast.storage.readmodel.row_operations import Values
from hindcast.storage.readmodel.tables import TABLES

BLANK: dict[str, Values] = {name: dict.fromkeys(table.c.keys()) for name, table in TABLES.items()}
"""A row of NULLs for each table: the rows of one statement must name the same columns."""


def insert_rows(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Insert the rows in their order."""
    if connection.dialect.name == "sqlite":
        names, statement = _for_sqlite(table.name)
        connection.exec_driver_sql(statement, [tuple(map(row.get, names)) for row in rows])
    else:
        blank = BLANK[table.name]
        connection.execute(insert(table), [{**blank, **row} for row in rows])


class RowBatch(NamedTuple):
    """Rows that share the values of some columns."""

    shared: Values
    columns: dict[str, Sequence[Any]]
    """Values of the other columns, all of the same length."""

    def rows(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The rows' values in the order of `names`."""
        own = self.columns
        return zip(
            *(own[name] if name in own else repeat(self.shared.get(name)) for name in names), strict=False
        )


def insert_many(connection: Connection, table: Table, many: Sequence[RowBatch]) -> None:
    """Insert the rows in their order."""
    names: Sequence[str] = table.c.keys()
    rows = list(chain.from_iterable(one.rows(names) for one in many))
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_for_sqlite(table.name)[1], rows)
    else:
        connection.execute(insert(table), [dict(zip(names, row, strict=True)) for row in rows])


@cache
def _for_sqlite(name: str) -> tuple[tuple[str, ...], str]:
    """Columns in order, and the statement with a placeholder for each."""
    names = tuple(TABLES[name].c.keys())
    columns = ", ".join(f'"{column}"' for column in names)
    places = ", ".join("?" * len(names))
    return names, f'INSERT INTO "{name}" ({columns}) VALUES ({places})'
