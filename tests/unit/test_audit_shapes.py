"""The audit's own idea of how payloads look agrees with the codec's, on every version ever written."""

from pathlib import Path
from typing import Any

import msgpack
import pytest

from hindcast.core.domain.task import Task
from hindcast.events.codec import decode
from hindcast.events.envelope import Stored
from hindcast.events.registry import BY_NAME
from hindcast.storage.audit.decoder import Event, digest_of
from hindcast.storage.audit.decoder import decode as read_event
from hindcast.storage.audit.ledger import Ledger
from hindcast.storage.audit.shapes import Refs, shapes
from hindcast.storage.audit.tasks import task_id

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "events").glob("*.msgpack"))
SHAPES = shapes()


def golden(path: Path) -> Event:
    content = path.read_bytes()
    event = read_event(Stored(1, "", content, msgpack.unpackb(content)["id"]), digest_of(content))
    assert isinstance(event, Event), event
    return event._replace(payload=with_real_names(event.payload))


def with_real_names(value: Any) -> Any:
    """The corpus calls every blob `sha256`; a blob's name is 64 digits."""
    if isinstance(value, dict):
        if value.keys() == {"sha256", "size"}:
            return {**value, "sha256": "ab" * 32}
        return {key: with_real_names(each) for key, each in value.items()}
    return [with_real_names(each) for each in value] if isinstance(value, list) else value


def wrong(event: Event) -> str | None:
    shape = SHAPES[event.type]
    return shape.check(shape.current(event.version, event.payload), [])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_event_of_the_golden_corpus_is_read_and_has_its_shape(path: Path) -> None:
    assert wrong(golden(path)) is None


def test_every_type_of_the_catalogue_has_a_shape() -> None:
    assert SHAPES.keys() == BY_NAME.keys()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_the_codec_refuses_the_audit_refuses(path: Path) -> None:
    """Every field of the present version in turn: taken away, and replaced by something of another type."""
    event = golden(path)
    shape = SHAPES[event.type]
    if event.version != shape.version:
        pytest.skip("an older version")
    raw = msgpack.unpackb(path.read_bytes())
    for name in event.payload:
        for mutated in (without(event.payload, name), {**event.payload, name: [[1, "x"], {}, 2.5]}):
            content = msgpack.packb({**raw, "payload": mutated})
            try:
                decode(Stored(1, "", content, raw["id"]))
            except Exception:
                refused = True
            else:
                refused = False
            if refused:
                assert wrong(event._replace(payload=mutated)) is not None, name


def without(payload: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key != name}


def test_blobs_are_collected_wherever_a_payload_names_them() -> None:
    refs: Refs = []
    blob = {"sha256": "ab" * 32, "size": 7}
    content = golden(next(path for path in GOLDEN if path.stem.startswith("step.taken")))
    payload = {**content.payload, "observation": blob}
    assert SHAPES["step.taken"].check(payload, refs) is None
    assert refs == [("ab" * 32, 7)]
    picture = {"sha256": "cd" * 32, "size": 9}
    refs.clear()
    newest = golden(
        next(path for path in GOLDEN if path.stem == f"step.taken.v{SHAPES['step.taken'].version}")
    ).payload
    screenshot = {**newest["screenshot"], "image": picture}
    read = [{"blob": picture, "tokens": 3, "digest": "ef" * 32}]
    step = {**newest, "observation": blob, "screenshot": screenshot, "pictures": read}
    assert SHAPES["step.taken"].check(step, refs) is None
    assert refs == [("ab" * 32, 7), ("cd" * 32, 9), ("cd" * 32, 9)]
    payload["observation"] = {"sha256": "AB" * 32, "size": 7}
    assert "names a blob" in str(SHAPES["step.taken"].check(payload, []))


def test_a_tasks_id_follows_from_its_content_as_the_core_says() -> None:
    task = Task(
        environment="store",
        family="f",
        seed=3,
        instruction="Ä",
        goal={"b": [1, {"z": 1, "a": 2.5}], "a": None},
        max_steps=4,
    )
    plain = {
        "max_steps": 4, "environment": "store", "family": "f", "seed": 3, "instruction": "Ä",
        "goal": {"b": [1, {"a": 2.5, "z": 1}], "a": None},
    }  # fmt: skip
    assert task_id(plain) == task.id


class TestLedger:
    """What is kept of every event."""

    def test_positions_are_found_again_across_gaps(self) -> None:
        ledger = Ledger()
        for position in (5, 6, 9, 10, 30):
            ledger.add(position, f"{position:0>36}", bytes([position] * 32), cause=None)
        ledger.mark_step(4)
        assert ledger.digest_start(9) == bytes([9] * 8)
        assert [ledger.digest_start(position) for position in (1, 4, 7, 8, 11, 31)] == [None] * 6
        assert (ledger.episode_of(30), ledger.episode_of(10), ledger.episode_of(7)) == (4, -1, -1)

    def test_ids_are_unique_and_causes_stand_before_what_they_caused(self) -> None:
        ledger = Ledger()
        ids = ["018f0000-0000-7000-8000-00000000000" + str(n) for n in range(5)]
        ledger.add(1, ids[0], bytes(32), cause=None)
        ledger.add(2, ids[1], bytes(32), cause=ids[0])
        ledger.add(3, ids[2], bytes(32), cause=ids[3])
        ledger.add(5, ids[3], bytes(32), cause=ids[3])
        ledger.add(6, ids[0], bytes(32), cause="another's")
        assert ledger.uncaused() == [3, 5, 6]
        assert ledger.repeated() == [(1, 6)]
