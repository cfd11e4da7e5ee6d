"""Decodes JSON documents strictly; errors name the key and the reason."""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from hindcast.core.structs import decode_json

LARGEST = 2**63 - 1
"""Largest integer of a document, as in the columns of the read model; an event could hold one bit more."""
Kind = TypeVar("Kind", bound=msgspec.Struct)
_AT = re.compile(r" - at `\$\.?(.*)`$")


class DocumentError(Exception):
    """An error in a document: its key and the reason."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}" if key else why)


def decoded(content: bytes, kind: type[Kind]) -> Kind:
    """Decode a document; unknown keys at any depth are refused. Raises DocumentError."""
    try:
        found = decode_json(content, kind, strict=True)
        plain = msgspec.json.decode(content)
        long = next(_too_long(plain, ""), None)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise from_validation(error) from error
    if long is not None:
        raise DocumentError(long, "this integer does not fit into 64 bits with a sign")
    unplaced = next(_unplaced(plain, found, ""), None)
    if unplaced is not None:
        raise DocumentError(unplaced, "there is no such key")
    return found


def from_validation(error: Exception) -> DocumentError:
    """Split msgspec's message into key and reason."""
    text = str(error)
    at = _AT.search(text)
    return DocumentError(at[1], text[: at.start()]) if at is not None else DocumentError("", text)


def _unplaced(plain: Any, found: Any, key: str) -> Iterator[str]:
    """Yield keys that the decoded structs do not have, at any depth."""
    if isinstance(found, msgspec.Struct) and isinstance(plain, dict):
        for name, value in plain.items():
            at = f"{key}.{name}" if key else name
            if name not in found.__struct_fields__:
                yield at
            else:
                yield from _unplaced(value, getattr(found, name), at)
    elif isinstance(found, list | tuple) and isinstance(plain, list):
        for place, (value, inner) in enumerate(zip(plain, found, strict=True)):
            yield from _unplaced(value, inner, f"{key}[{place}]")


def _too_long(plain: Any, key: str) -> Iterator[str]:
    """Yield keys of integers beyond `LARGEST`, at any depth."""
    if isinstance(plain, int) and not -LARGEST <= plain <= LARGEST:
        yield key
    elif isinstance(plain, dict):
        for name, value in plain.items():
            yield from _too_long(value, f"{key}.{name}" if key else name)
    elif isinstance(plain, list):
        for place, value in enumerate(plain):
            yield from _too_long(value, f"{key}[{place}]")
