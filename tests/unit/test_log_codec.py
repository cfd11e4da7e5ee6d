"""Bytes of the log: readable by any MessagePack reader, and never trusted."""

import msgpack
import msgspec
import pytest

from hindcast.core.errors import CorruptEvent, UnknownVersion
from hindcast.events import upcasters
from hindcast.events.catalogue import StateValued, TaskAdmitted
from hindcast.events.codec import MAX_EVENT_BYTES, EventTooLarge, decode, encode, encode_fact
from hindcast.events.envelope import Envelope, Stored
from hindcast.events.registry import BY_NAME


def envelope(**changes: object) -> Envelope:
    plain = Envelope(
        id="0197-id",
        type="task.admitted",
        version=1,
        run="r1",
        entity="task_1",
        ordinal=0,
        causation=None,
        correlation="ep_1",
        producer="curriculum.1",
        incarnation="curriculum.1.ab",
        producer_seq=0,
        prev_hash=b"",
        occurred_ns=1,
        policy_version=None,
        code_rev="rev",
        payload=encode_fact(TaskAdmitted(task_id="task_1", phase=2, value=0.5)),
    )
    return msgspec.structs.replace(plain, **changes)


def stored(data: bytes, event_id: str = "0197-id") -> Stored:
    return Stored(7, "run.r1.curriculum.curriculum.1.ab", data, event_id)


def test_a_fact_comes_back_as_it_was() -> None:
    recorded = decode(stored(encode(envelope())))
    assert recorded is not None
    assert recorded.fact == TaskAdmitted(task_id="task_1", phase=2, value=0.5)
    assert recorded.position == 7
    assert msgspec.structs.replace(recorded.envelope, payload=msgspec.Raw(b"")) == envelope(
        payload=msgspec.Raw(b"")
    )


def test_any_msgpack_reader_decodes_an_event() -> None:
    plain = msgpack.unpackb(encode(envelope()))
    assert plain["type"] == "task.admitted"
    assert plain["payload"] == {"task_id": "task_1", "phase": 2, "value": 0.5}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not decode"),
        (b"\xc1", "does not decode"),
        (encode(envelope())[:-3], "does not decode"),
        (b"\x91" * 100_000 + b"\x01", "does not decode"),
        (b"\x81\xa2id\xa2\xff\xfe", "does not decode"),
        (b"\xdf\xff\xff\xff\xff", "does not decode"),
        (b"\x81\xa2id\x01", "does not decode"),
        (b"\x01" * (MAX_EVENT_BYTES + 1), "are allowed"),
        (encode(envelope(version=0)), "claims version 0"),
        (encode(envelope(payload=msgspec.Raw(b"\x81\xa5phase\xa1x"))), r"task\.admitted v1 does not decode"),
        (
            encode(envelope(payload=msgspec.Raw(b"\x91" * 50_000 + b"\x01"))),
            "does not decode .Recursion",
        ),
    ],
    ids=[
        "empty",
        "reserved byte",
        "cut short",
        "nested too deep",
        "no utf-8",
        "giant map",
        "wrong type",
        "too large",
        "version 0",
        "payload of wrong type",
        "payload nested too deep",
    ],
)
def test_hostile_bytes_are_a_worded_error_that_names_the_position(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptEvent, match=rf"position 7 .*{reason}"):
        decode(stored(data))


def test_an_event_stored_under_another_id_is_damaged() -> None:
    with pytest.raises(CorruptEvent, match=r"names event 0197-id, the log stores it as 0198-id"):
        decode(stored(encode(envelope()), "0198-id"))


def test_an_unknown_type_is_passed_over_live_and_refused_strictly() -> None:
    data = encode(envelope(type="page.dreamt"))
    assert decode(stored(data), strict=False) is None
    with pytest.raises(UnknownVersion, match=r"position 7 holds a 'page.dreamt'.*Update Hindcast"):
        decode(stored(data))


@pytest.mark.parametrize("strict", [True, False])
def test_an_unknown_newer_version_is_refused_always(strict: bool) -> None:
    with pytest.raises(
        UnknownVersion, match=r"position 7 holds task.admitted version 9; .* up to 1.*Update Hindcast"
    ):
        decode(stored(encode(envelope(version=9))), strict=strict)


def test_an_event_too_large_for_the_log_is_refused_before_it_is_sent() -> None:
    with pytest.raises(EventTooLarge, match=r"blob store"):
        encode(envelope(code_rev="x" * MAX_EVENT_BYTES))


def test_old_versions_are_brought_up_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """state.valued as if v1 had named a `score` in percent and v2 no critic."""
    monkeypatch.setattr(upcasters, "STEPS", {})
    monkeypatch.setitem(BY_NAME, "state.valued", BY_NAME["state.valued"]._replace(version=3))

    @upcasters.step("state.valued", since=1)
    def from_percent(raw: upcasters.Raw) -> upcasters.Raw:
        return {"task_id": raw["task_id"], "value": raw["score"] / 100}

    @upcasters.step("state.valued", since=2)
    def with_critic(raw: upcasters.Raw) -> upcasters.Raw:
        return {**raw, "critic_version": 0}

    payload = msgspec.Raw(msgspec.msgpack.encode({"task_id": "t", "score": 25}))
    recorded = decode(stored(encode(envelope(type="state.valued", version=1, payload=payload))))
    assert recorded is not None
    assert recorded.fact == StateValued(task_id="t", critic_version=0, value=0.25)
    broken = encode(envelope(type="state.valued", version=1, payload=msgspec.Raw(b"\x80")))
    with pytest.raises(CorruptEvent, match=r"state.valued v1 does not decode"):
        decode(stored(broken))


def test_a_missing_upcasting_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BY_NAME, "task.admitted", BY_NAME["task.admitted"]._replace(version=2))
    with pytest.raises(UnknownVersion, match=r"task.admitted version 1 cannot be read as version 2"):
        decode(stored(encode(envelope())))


def test_a_step_cannot_be_declared_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upcasters, "STEPS", {})
    upcasters.step("x", since=1)(lambda raw: raw)
    with pytest.raises(ValueError, match=r"two upcasting steps"):
        upcasters.step("x", since=1)(lambda raw: raw)
