"""Shapes of payloads, derived from the catalogue's types: every field, and no other.

The catalogue serves as a description (`msgspec.inspect`); msgspec decodes nothing here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec.inspect as described

import hindcast.events.catalogue  # noqa: F401  # fills the registry
from hindcast.events.envelope import BlobRef
from hindcast.events.registry import BY_NAME
from hindcast.events.upcasters import upcast

DIGEST_CHARACTERS = 64
Refs = list[tuple[str, int]]
"""sha256 and size of the blobs that a payload names."""
Rule = Callable[[Any, Refs], str | None]
"""Returns what is wrong with a value, or None."""


class _Missing:
    """Marks a missing field."""


MISSING = _Missing()
NOTHING: frozenset[type] = frozenset()


class ValueKind(NamedTuple):
    """Allowed values: plain types, or those that a rule accepts."""

    types: frozenset[type]
    rule: Rule | None = None


class Field(NamedTuple):
    """One field of a structure."""

    name: str
    types: frozenset[type]
    rule: Rule | None


PLAIN: dict[type, frozenset[type]] = {
    described.StrType: frozenset({str}),
    described.IntType: frozenset({int}),
    described.FloatType: frozenset({float, int}),
    described.BoolType: frozenset({bool}),
    described.BytesType: frozenset({bytes}),
    described.NoneType: frozenset({type(None)}),
}


class Shape:
    """The structure of one payload."""

    def __init__(self, name: str) -> None:
        """`name`: a type of the catalogue."""
        entry = BY_NAME[name]
        self.name = name
        self.family = entry.family
        self.version = entry.version
        self.roles = entry.roles
        self.refs = tuple((path, kind) for path, kind in entry.refs if kind != "page")
        self.shows_pages = len(self.refs) < len(entry.refs)
        self._rule = _structure(described.type_info(entry.cls))

    def current(self, version: int, payload: dict[str, Any]) -> dict[str, Any]:
        """The payload in the current version, upcast by the steps of `events.upcasters`.

        Raises:
            UnknownVersion, KeyError, TypeError: it does not fit its version.
        """
        return payload if version == self.version else upcast(self.name, version, self.version, payload)

    def check(self, payload: dict[str, Any], refs: Refs) -> str | None:
        """What is wrong with a payload of the current version, or None; collects the blobs it names."""
        return self._rule(payload, refs)


def shapes() -> dict[str, Shape]:
    """Shapes of all event types of the catalogue."""
    return {name: Shape(name) for name in BY_NAME}


def _kind(info: described.Type) -> ValueKind:
    types = PLAIN.get(type(info))
    if types is not None:
        return ValueKind(types)
    match info:
        case described.AnyType():
            return ValueKind(NOTHING, lambda _value, _refs: None)
        case described.UnionType():
            kinds = [_kind(member) for member in info.types]
            rules = [kind.rule for kind in kinds if kind.rule is not None]
            assert len(rules) <= 1, "a union of two structures needs a tag"
            return ValueKind(frozenset().union(*(kind.types for kind in kinds)), rules[0] if rules else None)
        case described.LiteralType():
            return ValueKind(NOTHING, _one_of(frozenset(info.values)))
        case described.VarTupleType() | described.ListType():
            return ValueKind(NOTHING, _list_of(_kind(info.item_type)))
        case described.TupleType():
            return ValueKind(NOTHING, _exactly([_kind(member) for member in info.item_types]))
        case described.DictType():
            return ValueKind(NOTHING, _mapping(_kind(info.key_type), _kind(info.value_type)))
        case described.StructType():
            return ValueKind(NOTHING, _blob if info.cls is BlobRef else _structure(info))
    raise NotImplementedError(f"no rule for values of type {info}")


def _wrong(kind: ValueKind, value: Any, refs: Refs) -> str | None:
    if type(value) in kind.types:
        return None
    return f"is of type {type(value).__name__}" if kind.rule is None else kind.rule(value, refs)


def _structure(info: described.Type) -> Rule:
    assert isinstance(info, described.StructType)
    fields = []
    for field in info.fields:
        kind = _kind(field.type)
        absent = NOTHING if field.required else frozenset({_Missing})
        fields.append(Field(field.encode_name, kind.types | absent, kind.rule))
    field_names = frozenset(field.name for field in fields)

    def check(value: Any, refs: Refs) -> str | None:
        if type(value) is not dict:
            return f"is of type {type(value).__name__}, not a map"
        get, unread = value.get, len(value)
        for name, types, rule in fields:
            item = get(name, MISSING)
            unread -= item is not MISSING
            if type(item) in types:
                continue
            if item is MISSING:
                return f"lacks {name}"
            wrong = f"is of type {type(item).__name__}" if rule is None else rule(item, refs)
            if wrong is not None:
                return f"{name} {wrong}"
        if unread:
            return (
                f"holds {sorted(map(str, value.keys() - field_names))[0]!r}, which this version does not have"
            )
        return None

    return check


def _one_of(values: frozenset[Any]) -> Rule:
    def check(value: Any, _refs: Refs) -> str | None:
        try:
            return None if value in values else f"is {value!r}"
        except TypeError:
            return f"is of type {type(value).__name__}"

    return check


def _list_of(item: ValueKind) -> Rule:
    def check(value: Any, refs: Refs) -> str | None:
        if type(value) is not list:
            return f"is of type {type(value).__name__}, not a list"
        return next((wrong for element in value if (wrong := _wrong(item, element, refs)) is not None), None)

    return check


def _exactly(items: list[ValueKind]) -> Rule:
    def check(value: Any, refs: Refs) -> str | None:
        if type(value) is not list or len(value) != len(items):
            return f"is not a list of {len(items)}"
        pairs = zip(items, value, strict=True)
        return next(
            (wrong for kind, item_value in pairs if (wrong := _wrong(kind, item_value, refs)) is not None),
            None,
        )

    return check


def _mapping(key: ValueKind, item: ValueKind) -> Rule:
    def check(value: Any, refs: Refs) -> str | None:
        if type(value) is not dict:
            return f"is of type {type(value).__name__}, not a map"
        for name, item_value in value.items():
            wrong = _wrong(key, name, refs) or _wrong(item, item_value, refs)
            if wrong is not None:
                return f"{name!r} {wrong}"
        return None

    return check


def _blob(value: Any, refs: Refs) -> str | None:
    if type(value) is not dict or value.keys() != {"sha256", "size"}:
        return "is no reference to a blob"
    sha256, size = value["sha256"], value["size"]
    if type(sha256) is not str or len(sha256) != DIGEST_CHARACTERS or sha256.strip("0123456789abcdef"):
        return f"names a blob {sha256!r}"
    if type(size) is not int or size < 0:
        return f"names a blob of {size!r} bytes"
    refs.append((sha256, size))
    return None
