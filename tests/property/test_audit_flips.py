"""One flipped byte anywhere in any stored event is found, and the event it stands in, or its successor, is named."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hindcast.events.envelope import Stored
from hindcast.storage.audit.audit import AuditReport
from hindcast.storage.audit.decoder import Event, decode, digest_of
from stories.forged_log import audited, put, witness_of
from stories.training_story import Bench, bench, learn

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    async def train() -> Bench:
        made = await bench(tmp_path_factory.mktemp("run"), batches=2)
        await learn(made, until=3)
        return made

    return asyncio.run(train())


@pytest.fixture(scope="module")
def before(trained: Bench) -> AuditReport:
    report = asyncio.run(audited(trained))
    assert report.clean
    return report


def successor_of(trained: Bench, position: int) -> int:
    """Position of the next event of the same chain; 0: there is none."""
    events = [decode(stored, digest_of(stored.data)) for stored in trained.log.events]
    mine = events[position - 1]
    assert isinstance(mine, Event)
    later = (e for e in events[position:] if isinstance(e, Event) and e.incarnation == mine.incarnation)
    return next((event.position for event in later), 0)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_is_found_and_its_event_named(
    trained: Bench, before: AuditReport, data: st.DataObject
) -> None:
    """With a witness of the whole log: what nobody vouches for yet can be changed unseen otherwise."""
    position = data.draw(st.integers(1, len(trained.log.events)), label="position")
    original = trained.log.events[position - 1]
    place = data.draw(st.integers(0, len(original.data) - 1), label="byte")
    flip = data.draw(st.integers(1, 255), label="flip")
    changed = bytearray(original.data)
    changed[place] ^= flip
    successor = successor_of(trained, position)
    put(trained.log, position, bytes(changed))
    try:
        report = asyncio.run(audited(trained, witnesses=[witness_of(before)]))
    finally:
        trained.log.events[position - 1] = original
    assert any(
        defect.names(position) or (successor and defect.names(successor)) for defect in report.defects
    ), report.defects


@settings(max_examples=60)
@given(content=st.binary(max_size=300))
def test_whatever_bytes_stand_there_decoding_says_what_is_wrong(content: bytes) -> None:
    """Hostile bytes are a defect, never a crash."""
    found = decode(Stored(1, "run.x.y.z", content, ""), digest_of(content))
    assert isinstance(found, str)
    assert found


def test_nesting_deeper_than_any_stack_is_a_defect(tmp_path: Path) -> None:
    content = b"\x91" * 400_000 + b"\xc0"
    assert "no MessagePack" in str(decode(Stored(1, "run.x.y.z", content, ""), digest_of(content)))
