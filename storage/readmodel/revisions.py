"""Revisions of the rows of one table: a change closes the row that held and opens another from its position on."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Table, bindparam, select, tuple_, update

from hindcast.storage.readmodel.row_operations import Ensure, Put, Values
from hindcast.storage.readmodel.rows import BLANK, insert_rows
from hindcast.storage.readmodel.tables import OPEN

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
        wanted: Any = columns[0] if single else tuple_(*columns)
        first = columns[0]
        listed = sorted(keys)
        for start in range(0, len(listed), KEYS_PER_SELECT):
            part = listed[start : start + KEYS_PER_SELECT]
            among = [key[0] for key in part] if single else part
            # SQLite cannot search a key by its columns together, only by the first
            seek = () if single else (first.in_({key[0] for key in part}),)
            # `+ 0`: with an index on `valid_to`, SQLite would scan every row that holds, more with every episode
            holds = self._table.c.valid_to + 0 == OPEN
            rows = connection.execute(select(self._table).where(wanted.in_(among), holds, *seek))
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
            named = dict(zip(self._names, key, strict=True))
            self._open(position, key, {**BLANK[self._table.name], **named, **values})
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
            ended = {f"_{name}": row[name] for name in (*self._names, "valid_from")}
            self._closed.append({**ended, "_until": position})
        self._open(position, key, changed)

    def _open(self, position: int, key: Key, row: Values) -> None:
        row["valid_from"] = position
        row["valid_to"] = OPEN
        self._opened[key] = row
        self._added.append(row)

    def write(self, connection: Connection) -> None:
        """Close the rows that ended and add the new ones."""
        if self._closed:
            same = [self._table.c[name] == bindparam(f"_{name}") for name in (*self._names, "valid_from")]
            statement = update(self._table).where(*same).values(valid_to=bindparam("_until"))
            connection.execute(statement, self._closed)
        if self._added:
            insert_rows(connection, self._table, self._added)
