"""Every version of every fact ever written stays readable, and a shape never changes without a new version."""

import json
from pathlib import Path

import msgpack
import msgspec
import pytest
from record_events import FOLDER, SHAPES, event_id, sample, shape

from hindcast.events.codec import decode
from hindcast.events.envelope import Envelope, Fact, Stored
from hindcast.events.registry import BY_NAME

CORPUS = sorted(FOLDER.glob("*.msgpack"))
RECORD = "Run: python tests/golden/record_events.py"


def named(path: Path) -> tuple[str, int]:
    name, _, version = path.name.removesuffix(".msgpack").rpartition(".v")
    return name, int(version)


def test_the_corpus_holds_every_version_of_every_fact() -> None:
    wanted = {(name, version) for name, entry in BY_NAME.items() for version in range(1, entry.version + 1)}
    assert set(map(named, CORPUS)) == wanted, f"the corpus and the catalogue differ. {RECORD}"


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_a_golden_event_decodes_as_the_current_version(path: Path) -> None:
    name, version = named(path)
    recorded = decode(Stored(1, "run.golden.x", path.read_bytes(), event_id(name, version)))
    assert recorded is not None
    assert type(recorded.fact) is BY_NAME[name].cls
    assert (recorded.envelope.type, recorded.envelope.version) == (name, version)
    if version == BY_NAME[name].version:
        assert msgspec.msgpack.encode(recorded.fact) == msgspec.msgpack.encode(
            msgspec.convert(sample(msgspec.inspect.type_info(type(recorded.fact)), name), type(recorded.fact))
        )


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_a_golden_event_decodes_with_the_plain_msgpack_package(path: Path) -> None:
    plain = msgpack.unpackb(path.read_bytes())
    assert set(plain) == {field.encode_name for field in msgspec.structs.fields(Envelope)}
    assert plain["type"] == named(path)[0]
    assert isinstance(plain["payload"], dict)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_shape_does_not_change_without_a_new_version(name: str) -> None:
    entry = BY_NAME[name]
    recorded = json.loads(SHAPES.read_text()).get(name, {}).get(str(entry.version))
    assert recorded is not None, f"the shape of {name} v{entry.version} is not recorded. {RECORD}"
    assert shape(entry.cls) == recorded, (
        f"{name} changed its shape, but is still version {entry.version}. Bump the version in @fact, add a step to "
        f"events/upcasters.py. {RECORD}"
    )


def test_a_changed_shape_would_be_noticed() -> None:
    class Before(Fact, frozen=True, kw_only=True):
        value: float

    class After(Fact, frozen=True, kw_only=True):
        value: float | None

    class Documented(Fact, frozen=True, kw_only=True):
        value: float
        """Now with prose."""

    assert list(shape(Before).values()) != list(shape(After).values())
    assert list(shape(Before).values()) == list(shape(Documented).values())
