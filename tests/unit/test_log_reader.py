"""Reading checks what it reads: contiguity, chains, whose log it is."""

from contextlib import aclosing
from hashlib import sha256

import msgspec
import pytest

from hindcast.core.errors import CorruptEvent, ForeignLog, UnknownVersion
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import TaskAdmitted
from hindcast.events.codec import decode_envelope, encode
from hindcast.events.envelope import Stored
from hindcast.events.log.hash_chain import ChainChecker, RollingDigest
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.projection import fold
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read, tail, tail_batches
from hindcast.events.registry import BY_NAME

SETTINGS = LogSettings(linger_ms=0)


@pytest.fixture
async def log() -> MemoryLog:
    """Eight events, of two producers in turn."""
    log = MemoryLog("r1")
    async with (
        Publisher(log, producer="curriculum.1", code_rev="t", settings=SETTINGS) as one,
        Publisher(log, producer="curriculum.2", code_rev="t", settings=SETTINGS) as two,
    ):
        for number in range(4):
            for publisher in (one, two):
                await publisher.publish(TaskAdmitted(task_id=f"t{number}", phase=0), entity=f"t{number}")
                await publisher.commit()
    return log


def renumber(log: MemoryLog) -> None:
    log.events[:] = [msgspec.structs.replace(stored, position=at) for at, stored in enumerate(log.events, 1)]


async def positions(log: MemoryLog, **how: object) -> list[int]:
    return [recorded.position async for recorded in read(log, **how)]  # type: ignore[arg-type]


async def test_reading_ends_where_the_log_ends_or_earlier_if_asked(log: MemoryLog) -> None:
    assert await positions(log) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert await positions(log, after=5) == [6, 7, 8]
    assert await positions(log, until=2) == [1, 2]
    assert await positions(log, after=2, until=99) == [3, 4, 5, 6, 7, 8]
    assert await positions(log, after=8) == []


async def test_a_lost_event_is_noticed_by_its_position(log: MemoryLog) -> None:
    del log.events[3]
    with pytest.raises(CorruptEvent, match=r"position 5 follows 3"):
        await positions(log)


async def test_a_lost_event_is_noticed_by_the_chain_even_if_positions_are_patched(log: MemoryLog) -> None:
    del log.events[3]
    renumber(log)
    with pytest.raises(
        CorruptEvent, match=r"missing: curriculum\.2.* number 2 at position 5 after number 0 at position 2"
    ):
        await positions(log)


async def test_a_cut_beginning_is_noticed(log: MemoryLog) -> None:
    del log.events[:2]
    renumber(log)
    with pytest.raises(CorruptEvent, match=r"number 1, not 0"):
        await positions(log)


async def test_swapped_events_are_noticed(log: MemoryLog) -> None:
    log.events[2], log.events[4] = log.events[4], log.events[2]
    renumber(log)
    with pytest.raises(CorruptEvent, match=r"missing: curriculum\.1.* number 2 at position 3 after number 0"):
        await positions(log)


async def test_a_repeated_event_is_noticed(log: MemoryLog) -> None:
    log.events.insert(4, log.events[2])
    renumber(log)
    with pytest.raises(CorruptEvent, match=r"repeated or out of order"):
        await positions(log)


async def test_one_altered_byte_is_noticed_and_its_position_named(log: MemoryLog) -> None:
    stored = log.events[2]
    altered = stored.data.replace(b"t1", b"t9")
    assert len(altered) == len(stored.data)
    assert altered != stored.data
    log.events[2] = Stored(3, stored.subject, altered, stored.id)
    with pytest.raises(CorruptEvent, match=r"bytes at position 3 changed: .* at position 5"):
        await positions(log)
    assert await positions(log, check=False) == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_chains_are_checked_from_the_middle_too(log: MemoryLog) -> None:
    assert await positions(log, after=3) == [4, 5, 6, 7, 8]
    stored = log.events[4]
    log.events[4] = Stored(5, stored.subject, stored.data.replace(b"t2", b"t9"), stored.id)
    with pytest.raises(CorruptEvent, match=r"bytes at position 5 changed"):
        await positions(log, after=3)


async def test_another_runs_event_is_refused(log: MemoryLog) -> None:
    stored = log.events[1]
    envelope = msgspec.structs.replace(decode_envelope(stored), run="r2")
    log.events[1] = Stored(2, stored.subject, encode(envelope), stored.id)
    with pytest.raises(ForeignLog, match=r"position 2 belongs to run 'r2'.* log of run 'r1'"):
        await positions(log)


async def test_a_regressed_log_is_refused(log: MemoryLog) -> None:
    with pytest.raises(ForeignLog, match=r"ends at position 8, but it was read up to 9"):
        await positions(log, after=9)
    with pytest.raises(ForeignLog, match=r"ends at position 8"):
        async with aclosing(tail(log, after=9)) as events:
            await anext(events)


async def test_unknown_types_are_skipped_live_and_refused_strictly(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(BY_NAME, "task.admitted")
    assert await positions(log, strict=False) == []
    with pytest.raises(UnknownVersion):
        await positions(log)


async def test_a_tail_reports_the_position_it_reached_even_if_it_passes_over_events(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(BY_NAME, "task.admitted")
    async with aclosing(tail_batches(log, after=0)) as batches:
        assert await anext(batches) == ([], 8)


async def test_the_rolling_digest_is_the_fold_it_claims_to_be(log: MemoryLog) -> None:
    rolling = RollingDigest()
    expected = bytes(32)
    async for recorded in read(log):
        expected = sha256(expected + sha256(log.events[recorded.position - 1].data).digest()).digest()
        assert rolling.advance(recorded.digest) == expected
    resumed = RollingDigest(rolling.value)
    assert resumed.advance(b"x" * 32) != rolling.value


async def test_a_fold_is_the_projection_applied_in_order(log: MemoryLog) -> None:
    class Names:
        def initial(self) -> list[str]:
            return []

        def apply(self, state: list[str], recorded: object) -> list[str]:
            return [*state, recorded.envelope.entity]  # type: ignore[attr-defined]

    events = [recorded async for recorded in read(log)]
    whole = fold(Names(), events)
    assert whole == ["t0", "t0", "t1", "t1", "t2", "t2", "t3", "t3"]
    assert fold(Names(), events[3:], fold(Names(), events[:3])) == whole


async def test_a_chain_that_begins_with_a_predecessor_is_damaged(log: MemoryLog) -> None:
    envelope = msgspec.structs.replace(decode_envelope(log.events[0]), prev_hash=b"x" * 32)
    with pytest.raises(CorruptEvent, match=r"number 0 .* names a predecessor"):
        ChainChecker().link(1, envelope, b"")
