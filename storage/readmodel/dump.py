"""The canonical dump: every row of every table in a fixed order and encoding, so that two read models can be compared.

Rows that a later event closed are written as they were at that position. So the dump as of N of a read model that is
further on equals the dump of one that stops at N.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Connection, Table, case, literal, select

from hindcast.storage.readmodel.tables import OPEN, TABLES

ROWS_PER_FETCH = 2000

_encoder = msgspec.json.Encoder()


def dump_table(connection: Connection, table: Table, *, as_of: int | None = None) -> Iterator[bytes]:
    """The rows of one table in the order of its key, each a JSON list of its columns and a newline."""
    columns: list[ColumnElement[Any]] = list(table.c)
    statement = select(*columns)
    if as_of is not None:
        if table.info["versioned"]:
            until = case((table.c.valid_to > as_of, literal(OPEN, BigInteger)), else_=table.c.valid_to)
            columns = [until.label("valid_to") if column.name == "valid_to" else column for column in columns]
            statement = select(*columns).where(table.c.valid_from <= as_of)
        else:
            statement = statement.where(table.c.position <= as_of)
    ordered = statement.order_by(*table.primary_key).execution_options(yield_per=ROWS_PER_FETCH)
    for row in connection.execute(ordered):
        yield _encoder.encode(tuple(row)) + b"\n"


def dump(connection: Connection, *, as_of: int | None = None) -> Iterator[bytes]:
    """All tables, each after a line with its name."""
    for name, table in TABLES.items():
        yield f"# {name}: {', '.join(table.c.keys())}\n".encode()
        yield from dump_table(connection, table, as_of=as_of)


def digests(connection: Connection, *, as_of: int | None = None) -> dict[str, str]:
    """sha256 of each table's dump, by table name."""
    found = {}
    for name, table in TABLES.items():
        digest = sha256()
        for line in dump_table(connection, table, as_of=as_of):
            digest.update(line)
        found[name] = digest.hexdigest()
    return found
