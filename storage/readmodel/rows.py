"""Writes rows: many of one table at once, and changes, which close the row that held and open another from there on.

For SQLite, one fixed statement with tuples: SQLAlchemy's work per row costs more than storing it. For other databases,
SQLAlchemy's insert of the same values. A column that a row does not name is NULL.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, bindparam, insert, select, tuple_, update

from hindcast.storage.readmodel.row_operations import Ensure, Put, Values
from hindcast.storage.readmodel.tables import OPEN, TABLES

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
        own_columns = self.columns
        return zip(
            *(own_columns[name] if name in own_columns else repeat(self.shared.get(name)) for name in names),
            strict=False,
        )


def insert_many(connection: Connection, table: Table, many: Sequence[RowBatch]) -> None:
    """Insert the rows in their order."""
    names: Sequence[str] = table.c.keys()
    rows = list(chain.from_iterable(batch.rows(names) for batch in many))
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
    placeholders = ", ".join("?" * len(names))
    return names, f'INSERT INTO "{name}" ({columns}) VALUES ({placeholders})'


Key = tuple[Any, ...]


KEYS_PER_SELECT = 400
"""Keys looked up at once: databases limit the number of parameters of a statement."""


class Revisions:
    """Applies a batch of changes to rows in memory, then writes the result in two statements."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names: tuple[str, ...] = table.info["key"]
        self._standing: dict[Key, Values] = {}
        self._opened: dict[Key, Values] = {}
        self._added: list[Values] = []
        self._closed: list[Values] = []

    def load(self, connection: Connection, keys: Iterable[Key]) -> None:
        """Read the rows that hold now under these keys."""
        columns = [self._table.c[name] for name in self._names]
        single = len(columns) == 1
        key_columns: Any = columns[0] if single else tuple_(*columns)
        first = columns[0]
        sorted_keys = sorted(keys)
        for start in range(0, len(sorted_keys), KEYS_PER_SELECT):
            chunk = sorted_keys[start : start + KEYS_PER_SELECT]
            among = [key[0] for key in chunk] if single else chunk
            # SQLite cannot search a key by its columns together, only by the first
            seek = () if single else (first.in_({key[0] for key in chunk}),)
            # `+ 0`: with an index on `valid_to`, SQLite would scan every row that holds, more with every episode
            holds = self._table.c.valid_to + 0 == OPEN
            rows = connection.execute(select(self._table).where(key_columns.in_(among), holds, *seek))
            for row in rows.mappings():
                self._standing[tuple(row[name] for name in self._names)] = dict(row)

    def standing(self, key: Key) -> Values | None:
        """The row of a loaded key that holds after the changes so far."""
        return self._opened.get(key) or self._standing.get(key)

    def take(self, position: int, operation: Put | Ensure) -> None:
        """Take in one operation; one that changes nothing opens no row."""
        key, values = operation.key, operation.values
        row = self.standing(key)
        if row is None:
            key_values = dict(zip(self._names, key, strict=True))
            self._open(position, key, {**BLANK[self._table.name], **key_values, **values})
            return
        if isinstance(operation, Put):
            values = {
                name: value
                for name, value in values.items()
                if row[name] not in operation.final.get(name, ())
            }
        if isinstance(operation, Ensure) or all(row[name] == value for name, value in values.items()):
            return
        if row["valid_from"] == position:
            row.update(values)
            return
        changed = {**row, **values}
        if key in self._opened:
            row["valid_to"] = position
        else:
            ended_key = {f"_{name}": row[name] for name in (*self._names, "valid_from")}
            self._closed.append({**ended_key, "_until": position})
        self._open(position, key, changed)

    def _open(self, position: int, key: Key, row: Values) -> None:
        row["valid_from"] = position
        row["valid_to"] = OPEN
        self._opened[key] = row
        self._added.append(row)

    def write(self, connection: Connection) -> None:
        """Close the rows that ended and add the new ones."""
        if self._closed:
            key_matches = [
                self._table.c[name] == bindparam(f"_{name}") for name in (*self._names, "valid_from")
            ]
            statement = update(self._table).where(*key_matches).values(valid_to=bindparam("_until"))
            connection.execute(statement, self._closed)
        if self._added:
            insert_rows(connection, self._table, self._added)
