"""One event as one line of JSON, and back to the same bytes.

Payload and envelope are written as recorded, in any version, without loss. Values that JSON lacks are objects of one key.
`{"$bytes": "<base64>"}` are bytes (packed numbers). `{"$float": "nan"}` (`inf`, `-inf`; an unusual NaN by its eight bytes,
as in `7ff8000000000001`) is a float that is no number. `{"$map": …}` is an object whose only key looks like one of the
above. Integers have up to 64 bits.
"""

import math
import struct
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import msgspec

from hindcast.core.errors import HindcastError
from hindcast.events.envelope import Envelope, Recorded

BYTES, FLOAT, MAP = "$bytes", "$float", "$map"
NO_LINE = (
    msgspec.MsgspecError,
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors of reading a line that is no event: another shape, longer integers, endless nesting."""
_USUAL = ("nan", "inf", "-inf")
_MARKS = {BYTES, FLOAT, MAP}
_FIELDS = tuple(name for name in Envelope.__struct_fields__ if name != "payload")


class LineRefused(HindcastError):
    """A line is no exported event."""

    exit_code = 2


def to_line(recorded: Recorded) -> bytes:
    """The event as JSON, without a line end."""
    envelope = recorded.envelope
    plain = {name: getattr(envelope, name) for name in _FIELDS}
    plain["prev_hash"] = envelope.prev_hash.hex()
    payload = _told(msgspec.msgpack.decode(envelope.payload))
    told = {"position": recorded.position, "sha256": recorded.digest.hex(), **plain, "payload": payload}
    return msgspec.json.encode(told)


def from_line(line: bytes | str) -> tuple[int, bytes]:
    """Position and original bytes of the line's event.

    Raises:
        LineRefused: it is no such line, or was changed: the digest of its bytes differs from the one that it names.

    """
    try:
        told = msgspec.json.decode(line, type=dict[str, Any])
        position, digest = int(told.pop("position")), told.pop("sha256")
        told["prev_hash"] = bytes.fromhex(told["prev_hash"])
        told["payload"] = msgspec.Raw(msgspec.msgpack.encode(_meant(told["payload"])))
        content = msgspec.msgpack.encode(Envelope(**told))
    except NO_LINE as error:
        raise LineRefused(f"this line is no exported event: {type(error).__name__} {error}") from error
    if sha256(content).hexdigest() != digest:
        raise LineRefused(
            f"the event of position {position} was altered: its bytes have sha256 {sha256(content).hexdigest()}, the line "
            f"names {digest}"
        )
    return position, content


def _told(value: Any) -> Any:
    if isinstance(value, bytes):
        return {BYTES: b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {FLOAT: _named(value)}
    if isinstance(value, list):
        return [_told(item) for item in value]
    if isinstance(value, dict):
        told = {key: _told(item) for key, item in value.items()}
        return {MAP: told} if len(told) == 1 and told.keys() <= _MARKS else told
    return value


def _named(value: float) -> str:
    bits = struct.pack(">d", value)
    return next((name for name in _USUAL if struct.pack(">d", float(name)) == bits), bits.hex())


def _meant(value: Any) -> Any:
    if isinstance(value, list):
        return [_meant(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and value.keys() <= _MARKS:
        ((mark, inside),) = value.items()
        if mark == BYTES:
            return b64decode(inside, validate=True)
        if mark == FLOAT:
            return float(inside) if inside in _USUAL else struct.unpack(">d", bytes.fromhex(inside))[0]
        return {key: _meant(item) for key, item in inside.items()}
    return {key: _meant(item) for key, item in value.items()}
