"""Reads plain values, JSON and MessagePack as structs, from any thread.

msgspec prepares a type when the type is first used, and runs Python code during that time. A second thread that uses the type
then finds it half prepared, and the process ends with a segmentation fault (msgspec 0.22). Here a type is prepared under a
lock before it is used, with every type inside it.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
Hook = Callable[[type, Any], Any]
_preparing = Lock()
_prepared: set[Any] = set()


def prepare(kind: Any, *, hook: Hook | None = None) -> None:
    """Make a type ready to be read by any thread."""
    if kind not in _prepared:
        with _preparing:
            msgspec.msgpack.Decoder(kind, dec_hook=hook)
            _prepared.add(kind)


@overload
def convert(
    value: Any, kind: type[T], *, strict: bool = ..., str_keys: bool = ..., from_attributes: bool = ...
) -> T: ...
@overload
def convert(
    value: Any, kind: Any, *, strict: bool = ..., str_keys: bool = ..., from_attributes: bool = ...
) -> Any: ...
def convert(
    value: Any, kind: Any, *, strict: bool = True, str_keys: bool = False, from_attributes: bool = False
) -> Any:
    """Read a value made of dicts, lists and scalars, as `msgspec.convert`.

    Raises:
        msgspec.ValidationError: it does not have the type.
    """
    prepare(kind)
    return msgspec.convert(value, kind, strict=strict, str_keys=str_keys, from_attributes=from_attributes)


def decode_json(content: bytes | bytearray | str, kind: type[T], *, strict: bool = True) -> T:
    """Read JSON, as `msgspec.json.decode`.

    Raises:
        msgspec.DecodeError: it is no JSON, or does not have the type (`msgspec.ValidationError`).
    """
    prepare(kind)
    return msgspec.json.decode(content, type=kind, strict=strict)


@overload
def decode_msgpack(content: bytes | memoryview, kind: type[T], *, hook: Hook | None = ...) -> T: ...
@overload
def decode_msgpack(content: bytes | memoryview, kind: Any, *, hook: Hook | None = ...) -> Any: ...
def decode_msgpack(content: bytes | memoryview, kind: Any, *, hook: Hook | None = None) -> Any:
    """Read MessagePack, as `msgspec.msgpack.decode`. `hook` reads types that msgspec does not know.

    Raises:
        msgspec.DecodeError: it is no MessagePack, or does not have the type (`msgspec.ValidationError`).
    """
    prepare(kind, hook=hook)
    return msgspec.msgpack.decode(content, type=kind, dec_hook=hook)


@overload
def msgpack_decoder(kind: type[T], *, hook: Hook | None = ...) -> "msgspec.msgpack.Decoder[T]": ...
@overload
def msgpack_decoder(kind: Any, *, hook: Hook | None = ...) -> "msgspec.msgpack.Decoder[Any]": ...
def msgpack_decoder(kind: Any, *, hook: Hook | None = None) -> "msgspec.msgpack.Decoder[Any]":
    """A decoder of MessagePack for one type; use it where many values of the type are read."""
    prepare(kind, hook=hook)
    return msgspec.msgpack.Decoder(kind, dec_hook=hook)


def json_decoder(kind: type[T]) -> "msgspec.json.Decoder[T]":
    """A decoder of JSON for one type, likewise."""
    prepare(kind)
    return msgspec.json.Decoder(kind)
