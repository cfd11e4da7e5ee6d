"""Operations on the read model's rows, as plain values. Pure and independent of a database."""

from collections.abc import Sequence
from typing import Any

import msgspec

Values = dict[str, Any]


class Insert(msgspec.Struct, frozen=True, gc=False):
    """Add a row to a recorded table. `position` is filled in."""

    table: str
    values: Values


class InsertMany(msgspec.Struct, frozen=True, gc=False):
    """Add many rows to a recorded table. `position` is filled in."""

    table: str
    shared: Values
    """Values that all rows share."""
    columns: dict[str, Sequence[Any]]
    """Values of each row by column, all of the same length."""


class Put(msgspec.Struct, frozen=True, gc=False):
    """Change a row from here on: close the open row under `key`, and open one with `values` changed."""

    table: str
    key: tuple[Any, ...]
    values: Values
    final: dict[str, tuple[str, ...]] = {}
    """Values that are never changed, by column: a late event does not undo a final state."""


class CopiedValue(msgspec.Struct, frozen=True, gc=False):
    """Columns to copy from another table's row at that moment; NULL if there is no such row."""

    table: str
    key: tuple[Any, ...]
    columns: tuple[str, ...]


class Ensure(msgspec.Struct, frozen=True, gc=False):
    """Open a row under `key` unless there is one."""

    table: str
    key: tuple[Any, ...]
    values: Values
    taken: CopiedValue | None = None
    """Columns of the same names that are copied from another table."""


Operation = Insert | InsertMany | Put | Ensure
