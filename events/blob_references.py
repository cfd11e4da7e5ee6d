"""Blob references in events, found in any version of any fact, known or not: a blob is a map of `sha256` and `size`.

Invariant 1, the log is the truth: copying, checking and releasing of blobs follow the references in events.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

import hindcast.events.catalogue  # noqa: F401  # fills the registry
from hindcast.core.structs import convert
from hindcast.events.envelope import BlobRef, Envelope
from hindcast.events.registry import BY_NAME

KEYS = {"sha256", "size"}
MARK = b"\xa6sha256"
"""The key in MessagePack: an event without it names no blob and is not decoded."""
RELEASING = "blob.released"
PAGES = {path.rpartition(".")[2] for entry in BY_NAME.values() for path, kind in entry.refs if kind == "page"}
"""Fields that name page snapshots and screenshots."""


class BlobReference(NamedTuple):
    """A reference from an event to a blob."""

    blob: BlobRef
    page: bool
    """Whether it is a page snapshot or screenshot. Most blobs are, and nothing is computed from them again."""


def blobs_in(envelope: Envelope) -> list[BlobReference]:
    """List the blobs that an event names, including those of `blob.released`."""
    if MARK not in memoryview(envelope.payload).tobytes():
        return []
    payload = msgspec.msgpack.decode(envelope.payload)
    if envelope.type == RELEASING:
        return [reference._replace(page=payload.get("page", False)) for reference in _walk("", payload)]
    return list(_walk("", payload))


def _walk(field: str, value: Any) -> Iterator[BlobReference]:
    if isinstance(value, dict):
        if value.keys() == KEYS:
            yield BlobReference(convert(value, BlobRef), field in PAGES)
            return
        for key, item in value.items():
            yield from _walk(str(key), item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(field, item)
