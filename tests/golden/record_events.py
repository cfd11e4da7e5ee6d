"""Adds one stored event per type and version to the golden corpus, and the shape of every version. Never changes one.

Run after declaring a fact or bumping its version: python tests/golden/record_events.py
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from hindcast.events.codec import encode
from hindcast.events.envelope import Envelope
from hindcast.events.registry import BY_NAME, FactType

FOLDER = Path(__file__).parent / "events"
SHAPES = FOLDER / "shapes.json"
PROSE = {"title", "description"}


def event_id(name: str, version: int) -> str:
    return f"0190-{name}-{version}"


def shape(cls: type) -> Any:
    """The JSON schema of a payload without its prose, nested structs included."""
    _, components = msgspec.json.schema_components([cls])
    return _without_prose(components)


def _without_prose(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _without_prose(value)
            for key, value in sorted(node.items())
            if not (key in PROSE and isinstance(value, str))
        }
    return [_without_prose(item) for item in node] if isinstance(node, list | tuple) else node


def sample(kind: msgspec.inspect.Type, name: str) -> Any:
    """A value of a field's type, told apart by the field's name."""
    inspect = msgspec.inspect
    number = sum(name.encode())
    if isinstance(kind, inspect.StructType):
        return {field.encode_name: sample(field.type, field.encode_name) for field in kind.fields}
    if isinstance(kind, inspect.StrType):
        return name
    if isinstance(kind, inspect.BoolType):
        return True
    if isinstance(kind, inspect.IntType):
        return number
    if isinstance(kind, inspect.FloatType):
        return number / 8
    if isinstance(kind, inspect.BytesType):
        return number.to_bytes(8, "little")
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.DictType):
        return {"key": sample(kind.value_type, name)}
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return [sample(kind.item_type, name), sample(kind.item_type, name + "2")]
    if isinstance(kind, inspect.TupleType):
        return [sample(item, name) for item in kind.item_types]
    if isinstance(kind, inspect.UnionType):
        return sample(next(item for item in kind.types if not isinstance(item, inspect.NoneType)), name)
    if isinstance(kind, inspect.AnyType):
        return name
    raise TypeError(f"no sample is known for {kind}: add one to {__file__}")


def event(entry: FactType) -> bytes:
    payload = sample(msgspec.inspect.type_info(entry.cls), entry.name)
    return encode(
        Envelope(
            id=event_id(entry.name, entry.version),
            type=entry.name,
            version=entry.version,
            run="golden",
            entity="entity_1",
            ordinal=3,
            causation="0190-cause",
            correlation="ep_1",
            producer="actor.1",
            incarnation="actor.1.c0ffee00",
            producer_seq=5,
            prev_hash=bytes(range(32)),
            occurred_ns=1_700_000_000_000_000_000,
            policy_version=2,
            code_rev="golden",
            payload=msgspec.Raw(msgspec.msgpack.encode(payload)),
        )
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    shapes = json.loads(SHAPES.read_text()) if SHAPES.exists() else {}
    for name, entry in sorted(BY_NAME.items()):
        path = FOLDER / f"{name}.v{entry.version}.msgpack"
        if not path.exists():
            path.write_bytes(event(entry))
        shapes.setdefault(name, {}).setdefault(str(entry.version), shape(entry.cls))
    SHAPES.write_text(json.dumps(shapes, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
