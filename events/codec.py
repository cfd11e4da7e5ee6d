"""Codec: facts to bytes and back, as plain MessagePack maps that any `msgpack` reader decodes.

Stored bytes are the truth: hashes are taken of them, never of re-encoded events. Bytes that do not decode raise an error that
names the position.
"""

from hashlib import sha256

import msgspec

import hindcast.events.catalogue  # noqa: F401  # fills the registry
from hindcast.core.errors import CorruptEvent, HindcastError, UnknownVersion
from hindcast.core.structs import msgpack_decoder
from hindcast.events.envelope import UNREAD, Envelope, Fact, Recorded, Stored
from hindcast.events.registry import BY_NAME
from hindcast.events.upcasters import upcast

MAX_EVENT_BYTES = 508 * 1024
"""Most bytes of an event. The stream takes 512 KiB with headers; larger content belongs in the blob store."""

UNDECODABLE = (
    msgspec.DecodeError,
    msgspec.ValidationError,
    RecursionError,
    UnicodeDecodeError,
    OverflowError,
)
"""Exceptions of msgspec on hostile bytes; deep nesting gives RecursionError."""

_encoder = msgspec.msgpack.Encoder()
_envelope_decoder = msgpack_decoder(Envelope)
_fact_decoders: dict[type[Fact], msgspec.msgpack.Decoder[Fact]] = {}


class EventTooLarge(HindcastError):
    """An encoded event is too large for the log; its content belongs in the blob store."""


def encode_fact(fact: Fact) -> msgspec.Raw:
    """Encode a fact as the payload of an envelope."""
    return msgspec.Raw(_encoder.encode(fact))


def encode(envelope: Envelope) -> bytes:
    """Encode an envelope as the bytes to append.

    Raises:
        EventTooLarge: more than `MAX_EVENT_BYTES`.

    """
    content = _encoder.encode(envelope)
    if len(content) > MAX_EVENT_BYTES:
        raise EventTooLarge(
            f"{envelope.type} of {envelope.entity} takes {len(content)} bytes; the log takes {MAX_EVENT_BYTES} "
            "per event. Put its content into the blob store and name it by digest."
        )
    return content


def decode_envelope(stored: Stored) -> Envelope:
    """Decode the envelope alone; the payload stays raw.

    Raises:
        CorruptEvent: the bytes are too large, no envelope, or have another id than the log stores.

    """
    if len(stored.data) > MAX_EVENT_BYTES:
        raise _corrupt(stored, f"it has {len(stored.data)} bytes, {MAX_EVENT_BYTES} are allowed")
    try:
        envelope = _envelope_decoder.decode(stored.data)
    except UNDECODABLE as error:
        raise _corrupt(stored, f"its envelope does not decode ({_reason(error)})") from error
    if stored.id is not UNREAD and envelope.id != stored.id:
        raise _corrupt(
            stored, f"its envelope names event {envelope.id}, the log stores it as {stored.id or 'nothing'}"
        )
    if envelope.version < 1:
        raise _corrupt(stored, f"its envelope claims version {envelope.version}")
    return envelope


def decode_fact(stored: Stored, envelope: Envelope, *, strict: bool = True) -> Fact | None:
    """Decode the payload, upcast to the fact's current version in the catalogue.

    Returns None for a type that this Hindcast does not know, if not `strict`.

    Raises:
        UnknownVersion: written by a newer Hindcast or, if `strict`, of an unknown type.
        CorruptEvent: the payload does not decode.

    """
    entry = BY_NAME.get(envelope.type)
    if entry is None:
        if strict:
            raise UnknownVersion(
                f"position {stored.position} holds a {envelope.type!r}, which this Hindcast does not know "
                f"(written by {envelope.producer}, code {envelope.code_rev}). Update Hindcast."
            )
        return None
    if envelope.version > entry.version:
        raise UnknownVersion(
            f"position {stored.position} holds {envelope.type} version {envelope.version}; this Hindcast knows versions "
            f"up to {entry.version} (written by {envelope.producer}, code {envelope.code_rev}). Update Hindcast."
        )
    decoder = _fact_decoders.get(entry.cls)
    if decoder is None:
        decoder = _fact_decoders[entry.cls] = msgpack_decoder(entry.cls)
    try:
        payload: bytes | msgspec.Raw = envelope.payload
        if envelope.version < entry.version:
            raw = upcast(envelope.type, envelope.version, entry.version, msgspec.msgpack.decode(payload))
            payload = _encoder.encode(raw)
        return decoder.decode(payload)
    except (*UNDECODABLE, KeyError, TypeError) as error:
        raise _corrupt(
            stored, f"its {envelope.type} v{envelope.version} does not decode ({_reason(error)})"
        ) from error


def decode(stored: Stored, *, strict: bool = True) -> Recorded | None:
    """Decode a stored event. Returns None for a type that this Hindcast does not know, if not `strict`.

    Raises:
        CorruptEvent: the bytes do not decode; the message names the position.
        UnknownVersion: written by a newer Hindcast or, if `strict`, of an unknown type.

    """
    envelope = decode_envelope(stored)
    fact = decode_fact(stored, envelope, strict=strict)
    if fact is None:
        return None
    return Recorded(stored.position, envelope, fact, sha256(stored.data).digest())


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _corrupt(stored: Stored, problem: str) -> CorruptEvent:
    subject = "" if stored.subject is UNREAD else f" ({stored.subject})"
    return CorruptEvent(
        f"position {stored.position}{subject} is damaged: {problem}. The stored bytes are not those a producer "
        f"appended. Run: hindcast log show --position {stored.position}"
    )
