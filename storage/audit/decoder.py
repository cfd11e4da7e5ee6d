"""Decodes stored bytes to plain values with the `msgpack` package, independently of our codec.

An event must also be the bytes that its values encode to. Anything hidden between them (a repeated key, a number in a
longer form, a tail) would be read by one decoder and skipped by another.
"""

from hashlib import sha256
from typing import Any, NamedTuple

import msgpack

from hindcast.events.envelope import Stored

LARGEST_BYTES = 508 * 1024
SHA256_BYTES = 32
Types = frozenset[type]
TEXT: Types = frozenset({str})
NUMBER: Types = frozenset({int})
OPTIONAL_TEXT: Types = frozenset({str, type(None)})
OPTIONAL_NUMBER: Types = frozenset({int, type(None)})
BYTES: Types = frozenset({bytes})
MAP: Types = frozenset({dict})
ENVELOPE: tuple[tuple[str, Types], ...] = (
    ("id", TEXT),
    ("type", TEXT),
    ("version", NUMBER),
    ("run", TEXT),
    ("entity", TEXT),
    ("ordinal", NUMBER),
    ("causation", OPTIONAL_TEXT),
    ("correlation", OPTIONAL_TEXT),
    ("producer", TEXT),
    ("incarnation", TEXT),
    ("producer_seq", NUMBER),
    ("prev_hash", BYTES),
    ("occurred_ns", NUMBER),
    ("policy_version", OPTIONAL_NUMBER),
    ("code_rev", TEXT),
    ("payload", MAP),
)
_pack = msgpack.Packer().pack


class Event(NamedTuple):
    """One decoded event with its place in the log."""

    position: int
    subject: str
    stored_id: str
    digest: bytes
    """sha256 of the stored bytes."""
    id: str
    type: str
    version: int
    run: str
    entity: str
    ordinal: int
    causation: str | None
    correlation: str | None
    producer: str
    incarnation: str
    producer_seq: int
    prev_hash: bytes
    occurred_ns: int
    policy_version: int | None
    code_rev: str
    payload: dict[str, Any]


def decode(stored: Stored, digest: bytes) -> Event | str:
    """The event, or what is wrong with its bytes."""
    content = stored.data
    if len(content) > LARGEST_BYTES:
        return f"{len(content)} bytes; {LARGEST_BYTES} are allowed"
    try:
        values = msgpack.unpackb(content)
        is_canonical = _pack(values) == content
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        return f"bytes that are no MessagePack ({type(error).__name__}: {error})"
    if type(values) is not dict:
        return f"a {type(values).__name__}, not a map"
    if not is_canonical:
        return "bytes that its own values do not encode to: something is hidden between them"
    fields = []
    for name, types in ENVELOPE:
        value = values.get(name, ...)
        if type(value) not in types:
            return f"an envelope whose {name} " + ("is missing" if value is ... else f"is {value!r:.80}")
        fields.append(value)
    if len(values) > len(ENVELOPE):
        return f"an envelope with {sorted(map(str, values.keys() - dict(ENVELOPE)))[0]!r} in it"
    event = Event(stored.position, stored.subject, stored.id, digest, *fields)
    if event.version < 1 or event.producer_seq < 0 or event.ordinal < 0:
        return (
            f"version {event.version}, number {event.producer_seq} of its producer, ordinal {event.ordinal}"
        )
    if len(event.prev_hash) not in (0, SHA256_BYTES):
        return f"a predecessor's digest of {len(event.prev_hash)} bytes"
    return event


def digest_of(content: bytes) -> bytes:
    """sha256 of stored bytes."""
    return sha256(content).digest()
