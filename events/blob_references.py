"""Which blobs an event names. Works on any version of any fact, known or not: a blob is a map of `sha256` and `size`.

Invariant 1, the log is the truth: whoever copies, checks or lets go of blobs goes by what stands in events.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from hindcast.events.envelope import BlobRef, Envelope

KEYS = {"sha256", "size"}
MARK = b"\xa6sha256"
"""The key in MessagePack: an event without it names no blob, and need not be decoded."""
RELEASING = "blob.released"
PAGES = ("observation", "final_observation", "image")
"""Fields that name snapshots of pages and screenshots of them."""


class BlobReference(NamedTuple):
    """A blob in an event."""

    blob: BlobRef
    page: bool
    """Whether it is a snapshot of a page or a screenshot: by far the most of them, and nothing is computed from them again."""


def blobs_in(envelope: Envelope) -> list[BlobReference]:
    """The blobs that an event names, `blob.released` included."""
    if MARK not in memoryview(envelope.payload).tobytes():
        return []
    payload = msgspec.msgpack.decode(envelope.payload)
    if envelope.type == RELEASING:
        return [named._replace(page=payload.get("page", False)) for named in _walk("", payload)]
    return list(_walk("", payload))


def _walk(field: str, value: Any) -> Iterator[BlobReference]:
    if isinstance(value, dict):
        if value.keys() == KEYS:
            yield BlobReference(msgspec.convert(value, BlobRef), field in PAGES)
            return
        for key, item in value.items():
            yield from _walk(str(key), item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(field, item)
