"""What a fact does to the read model's rows, as plain values. Pure: nothing here knows a database."""

from collections.abc import Sequence
from typing import Any

import msgspec

Values = dict[str, Any]


class Insert(msgspec.Struct, frozen=True, gc=False):
    """Something happened: add a row to a recorded table. `position` is filled in."""

    table: str
    values: Values


class InsertMany(msgspec.Struct, frozen=True, gc=False):
    """Something happened that has many parts: add a row to a recorded table for each. `position` is filled in."""

    table: str
    shared: Values
    """What all rows have."""
    columns: dict[str, Sequence[Any]]
    """What each row has for itself; equally long."""


class Put(msgspec.Struct, frozen=True, gc=False):
    """Something is different from here on: close the open row under `key`, open one with `values` changed."""

    table: str
    key: tuple[Any, ...]
    values: Values
    final: dict[str, tuple[str, ...]] = {}
    """Values that stay, by column: a state that has been left for good is not entered again by a late fact."""


class CopiedValue(msgspec.Struct, frozen=True, gc=False):
    """What another table's row says at that moment; nothing where there is no such row."""

    table: str
    key: tuple[Any, ...]
    columns: tuple[str, ...]


class Ensure(msgspec.Struct, frozen=True, gc=False):
    """Something must be known: open a row under `key` unless there is one."""

    table: str
    key: tuple[Any, ...]
    values: Values
    taken: CopiedValue | None = None
    """Columns of the same names that are copied from elsewhere."""


Operation = Insert | InsertMany | Put | Ensure
