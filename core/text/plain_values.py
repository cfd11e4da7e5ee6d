"""Plain values: those that TOML, JSON, a 64-bit column and the log all read back unchanged, and their parsers.

All user input passes here once: a number beyond 64 bits, a non-finite number, or text that is not UTF-8 would otherwise
fail far from its source, after something has been written.
"""

import json
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn

LEAST_INTEGER = -(2**63)
GREATEST_INTEGER = 2**63 - 1
_COUNT = re.compile(r"[0-9]{1,18}")
DEEPEST = 32
"""Most levels of nested lists and tables."""


def find_unkeepable(value: Any) -> str:
    """Say why a value is not plain, as the end of a sentence that begins with its name; empty if it is plain.

    >>> find_unkeepable([1, {"weight": float("inf")}])
    'holds inf, and every number must be finite'
    """
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth > DEEPEST:
            return f"is nested more than {DEEPEST} levels deep"
        reason = _why_not(item)
        if reason:
            return reason
        if isinstance(item, Mapping):
            waiting += [(child, depth + 1) for pair in item.items() for child in pair]
        elif isinstance(item, list | tuple):
            waiting += [(child, depth + 1) for child in item]
    return ""


def read_count(text: str) -> int | None:
    """Parse a non-negative integer of up to 18 digits; None for any other text."""
    return int(text) if _COUNT.fullmatch(text) else None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text. Raises ValueError, also for nesting too deep, or a number too long, for tomllib."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its lists or tables are nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        raise ValueError(_beyond_digits(error)) from None


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text. Raises ValueError, also for NaN and Infinity, which JSON lacks."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("its lists or objects are nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError as error:
        raise ValueError(_beyond_digits(error)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _beyond_digits(error: ValueError) -> str:
    """Rephrase int()'s message about a number with thousands of digits."""
    return "it holds a number of thousands of digits" if "integer string" in str(error) else str(error)


def _why_not(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"holds {value}, and every number must be finite"
    if isinstance(value, int) and not LEAST_INTEGER <= value <= GREATEST_INTEGER:
        return f"holds an integer beyond 64 bits: it must be {LEAST_INTEGER} to {GREATEST_INTEGER}"
    if isinstance(value, str):
        if "\0" in value:
            return "holds a null character, which no path and no name can"
        if any("\ud800" <= character <= "\udfff" for character in value):
            return "is not valid UTF-8"
    return ""
