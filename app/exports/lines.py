"""Converts an event to a line of JSON, and back to the same bytes.

Payload and envelope are written as recorded, in any version, without loss. Values that JSON lacks are objects with one key.
`{"$bytes": "<base64>"}` is bytes (packed numbers). `{"$float": "nan"}` is a float that JSON cannot write: `nan`, `inf`,
`-inf`, or another NaN by its eight bytes, such as `7ff8000000000001`. `{"$map": …}` is an object whose only key is one of
these three. Integers have up to 64 bits.
"""

import math
import struct
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import msgspec

from hindcast.core.errors import HindcastError
from hindcast.core.structs import decode_json
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
"""Errors of reading a line that is not an event: wrong shape, too long integers, too deep nesting."""
_USUAL = ("nan", "inf", "-inf")
_MARKS = {BYTES, FLOAT, MAP}
_FIELDS = tuple(name for name in Envelope.__struct_fields__ if name != "payload")


class LineRefused(HindcastError):
    """A line is not an exported event."""

    exit_code = 2


def to_line(recorded: Recorded) -> bytes:
    """Encode an event as JSON, without a line end."""
    envelope = recorded.envelope
    plain = {name: getattr(envelope, name) for name in _FIELDS}
    plain["prev_hash"] = envelope.prev_hash.hex()
    payload = _to_json(msgspec.msgpack.decode(envelope.payload))
    told = {"position": recorded.position, "sha256": recorded.digest.hex(), **plain, "payload": payload}
    return msgspec.json.encode(told)


def from_line(line: bytes | str) -> tuple[int, bytes]:
    """Decode a line to the position and the original bytes of its event.

    Raises:
        LineRefused: the line is not an exported event, or its bytes do not have the digest that it names.

    """
    try:
        told = decode_json(line, dict[str, Any])
        position, digest = int(told.pop("position")), told.pop("sha256")
        told["prev_hash"] = bytes.fromhex(told["prev_hash"])
        told["payload"] = msgspec.Raw(msgspec.msgpack.encode(_from_json(told["payload"])))
        content = msgspec.msgpack.encode(Envelope(**told))
    except NO_LINE as error:
        raise LineRefused(f"this line is no exported event: {type(error).__name__} {error}") from error
    if sha256(content).hexdigest() != digest:
        raise LineRefused(
            f"the event of position {position} was altered: its bytes have sha256 {sha256(content).hexdigest()}, the line "
            f"names {digest}"
        )
    return position, content


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {BYTES: b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {FLOAT: _float_name(value)}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        told = {key: _to_json(item) for key, item in value.items()}
        return {MAP: told} if len(told) == 1 and told.keys() <= _MARKS else told
    return value


def _float_name(value: float) -> str:
    bits = struct.pack(">d", value)
    return next((name for name in _USUAL if struct.pack(">d", float(name)) == bits), bits.hex())


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and value.keys() <= _MARKS:
        ((mark, inside),) = value.items()
        if mark == BYTES:
            return b64decode(inside, validate=True)
        if mark == FLOAT:
            return float(inside) if inside in _USUAL else struct.unpack(">d", bytes.fromhex(inside))[0]
        return {key: _from_json(item) for key, item in inside.items()}
    return {key: _from_json(item) for key, item in value.items()}
