"""Operations on the read model's rows, and values as columns store them. Pure and independent of a database.

Pages and policies determine some values. PostgreSQL refuses NUL in text, and both databases refuse integers beyond 64 bits:
one such value would stop every projector at that event. It is replaced here, and the log keeps the original.
"""

import math
from collections.abc import Iterable, Sequence
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


_encoder = msgspec.json.Encoder(order="sorted")


_LARGEST = 2**63 - 1


_SHOWN_BYTES = 32


def clean_text(text: str | None) -> str | None:
    """The text with NUL replaced by the replacement character."""
    return text.replace("\x00", "�") if text is not None and "\x00" in text else text


def small_integer(number: int | None) -> int | None:
    """The number, or None if it exceeds 64 bits."""
    return number if number is not None and -_LARGEST <= number <= _LARGEST else None


def finite(number: float | None) -> float | None:
    """The number, or None if it is not finite: SQLite cannot distinguish those from NULL, nor -0.0 from 0.0."""
    return number + 0.0 if number is not None and math.isfinite(number) else None


def finite_all(numbers: Iterable[float | None]) -> list[float | None]:
    """Apply `finite` to each."""
    finite_one = math.isfinite
    return [number + 0.0 if number is not None and finite_one(number) else None for number in numbers]


def to_json(value: Any) -> str:
    """JSON text with sorted keys; numbers that are not finite become null."""
    return _encoder.encode(value).decode()


def without_bytes(value: Any) -> Any:
    """Plain values of a fact: short byte strings as hexadecimal text, long ones as their length."""
    if isinstance(value, bytes):
        return value.hex() if len(value) <= _SHOWN_BYTES else f"<{len(value)} bytes>"
    if isinstance(value, dict):
        return {str(key): without_bytes(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_bytes(item) for item in value]
    return value


def fact_to_json(fact: msgspec.Struct) -> str:
    """A whole fact as JSON text, without its large byte strings."""
    return to_json(without_bytes(msgspec.to_builtins(fact, builtin_types=(bytes,))))
