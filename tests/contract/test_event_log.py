"""What every `EventLog` promises, on every adapter: in memory, in memory over a lossy link, JetStream, read from an archive.

Records go to subjects of the family `run`, which the role `admin` may append to; the log does not look into them.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest
from conftest import Connect, LiveBroker

from hindcast.core.errors import ExpectationFailed, LogFull
from hindcast.core.settings.schema import LogSettings
from hindcast.events.codec import MAX_EVENT_BYTES
from hindcast.events.envelope import Record
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.memory import Faults, MemoryLog
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.subjects import matches
from stories.archive_story import ArchivedLog, MovedLog

pytestmark = [
    pytest.mark.parametrize("adapter", ["memory", "faulty", "jetstream", "archived", "moved"]),
    pytest.mark.broker,
]

_ids = itertools.count()


@pytest.fixture
async def archiver(broker: LiveBroker, connect_as: Connect, jetstream_log: JetStreamLog) -> JetStreamLog:
    """The same stream for who may let the broker forget."""
    return await JetStreamLog.open(await connect_as(broker, "archiver"), jetstream_log.run, LogSettings())


@pytest.fixture
def log(adapter: str, request: pytest.FixtureRequest, run_name: str) -> EventLog:
    if adapter == "memory":
        return MemoryLog(run_name)
    if adapter == "moved":
        streams = [request.getfixturevalue(name) for name in ("jetstream_log", "archiver")]
        return cast(EventLog, MovedLog(*streams, request.getfixturevalue("tmp_path")))
    if adapter == "archived":
        return ArchivedLog(run_name, request.getfixturevalue("tmp_path"))
    if adapter == "faulty":
        faults = Faults(seed=11, lost_request=0.25, lost_reply=0.25, duplicate=0.25, delay=0.25)
        return MemoryLog(run_name, faults=faults)
    found: JetStreamLog = request.getfixturevalue("jetstream_log")
    return found


@pytest.fixture
def young(adapter: str) -> None:
    """For tests that append again what they have appended: it is younger than whatever leaves the broker."""
    if adapter == "moved":
        pytest.skip("here every event leaves the broker at once; the archiver keeps what may be repeated")


@pytest.fixture
def records(run_name: str) -> Callable[..., list[Record]]:
    """`records(3, key="w1")`: records with ids of their own under one subject."""

    def make(count: int, key: str = "w1", size: int = 20) -> list[Record]:
        made = []
        for _ in range(count):
            number = next(_ids)
            made.append(
                Record(
                    f"run.{run_name}.run.{key}", f"event {number}".encode().ljust(size, b"."), f"id-{number}"
                )
            )
        return made

    return make


Make = Callable[..., list[Record]]


async def take(log: EventLog, *, after: int, count: int) -> list[tuple[int, str, bytes]]:
    """The first `count` events a tail gives."""
    taken: list[tuple[int, str, bytes]] = []
    async with asyncio.timeout(20), aclosing(log.tail(after=after)) as batches:
        async for batch in batches:
            taken += [(stored.position, stored.id, stored.data) for stored in batch]
            if len(taken) >= count:
                return taken
    raise AssertionError("the tail ended")


def expected(records: Sequence[Record], first: int = 1) -> list[tuple[int, str, bytes]]:
    return [(position, record.id, record.data) for position, record in enumerate(records, first)]


async def test_following_without_headers_gives_the_same_positions_and_contents(
    log: EventLog, records: Make
) -> None:
    appended = records(5) + records(2, key="w2", size=70_000)
    await log.append(appended)
    found = []
    async with asyncio.timeout(20), aclosing(log.tail(after=1, headers=False)) as batches:
        async for batch in batches:
            found += [(stored.position, stored.data) for stored in batch]
            if found[-1][0] == len(appended):
                break
    assert found == [(position, record.data) for position, record in enumerate(appended, 1)][1:]


async def test_positions_count_from_one_without_gaps(log: EventLog, records: Make) -> None:
    assert await log.append(records(3)) == [1, 2, 3]
    assert await log.append(records(1)) == [4]
    assert await log.append(records(2, key="w2")) == [5, 6]


async def test_an_empty_batch_appends_nothing(log: EventLog) -> None:
    assert await log.append([]) == []
    assert (await log.identity()).last == 0


async def test_what_was_appended_reads_back_unchanged_and_in_order(log: EventLog, records: Make) -> None:
    written = records(7)
    await log.append(written[:5])
    await log.append(written[5:])
    stored = await log.read(after=0, limit=100)
    assert [(s.position, s.id, s.data) for s in stored] == expected(written)
    assert {s.subject for s in stored} == {written[0].subject}


async def test_reading_keeps_to_its_limit_and_its_place(log: EventLog, records: Make) -> None:
    written = records(6)
    await log.append(written)
    assert [s.position for s in await log.read(after=2, limit=3)] == [3, 4, 5]
    assert [s.position for s in await log.read(after=4, limit=3)] == [5, 6]
    assert await log.read(after=6, limit=3) == []


@pytest.mark.usefixtures("young")
async def test_repeating_a_batch_stores_nothing_twice_and_gives_the_same_positions(
    log: EventLog, records: Make
) -> None:
    first, second = records(4), records(3, key="w2")
    positions = await log.append(first)
    await log.append(second)
    assert await log.append(first) == positions
    assert (await log.identity()).last == 7


async def test_repeating_a_single_record_gives_its_position(log: EventLog, records: Make) -> None:
    one, others = records(1), records(5)
    await log.append(one)
    await log.append(others)
    assert await log.append(one) == [1]
    assert (await log.identity()).last == 6


async def test_a_batch_with_one_known_record_appends_only_the_others(log: EventLog, records: Make) -> None:
    written = records(5)
    await log.append(written[:3])
    assert await log.append(written[1:]) == [2, 3, 4, 5]
    assert [s.id for s in await log.read(after=0, limit=10)] == [record.id for record in written]


@pytest.mark.usefixtures("young")
async def test_a_batch_may_span_subjects_and_is_found_again(log: EventLog, records: Make) -> None:
    mixed = [
        record for pair in zip(records(3, key="w1"), records(3, key="w2"), strict=True) for record in pair
    ]
    positions = await log.append(mixed)
    await log.append(records(4, key="w1"))
    assert await log.append(mixed) == positions == [1, 2, 3, 4, 5, 6]


async def test_the_first_expectation_wins_and_the_second_is_refused(
    log: EventLog, records: Make, run_name: str
) -> None:
    absent = Expectation(subject=f"run.{run_name}.run.entity", last=0)
    winner, loser = records(1, key="entity"), records(1, key="entity")
    await log.append(winner, expect=absent)
    with pytest.raises(ExpectationFailed, match=r"is not at position 0"):
        await log.append(loser, expect=absent)
    assert [s.id for s in await log.read(after=0, limit=10)] == [winner[0].id]


async def test_repeating_an_expected_append_that_succeeded_is_no_failure(
    log: EventLog, records: Make, run_name: str
) -> None:
    absent = Expectation(subject=f"run.{run_name}.run.entity", last=0)
    one = records(1, key="entity")
    assert await log.append(one, expect=absent) == [1]
    await log.append(records(2, key="other"))
    assert await log.append(one, expect=absent) == [1]


async def test_an_expectation_may_name_a_whole_family(log: EventLog, records: Make, run_name: str) -> None:
    family = f"run.{run_name}.run.>"
    await log.append(records(2, key="a"), expect=Expectation(subject=family, last=0))
    await log.append(records(2, key="b"), expect=Expectation(subject=family, last=2))
    with pytest.raises(ExpectationFailed):
        await log.append(records(2, key="c"), expect=Expectation(subject=family, last=3))
    assert (await log.identity()).last == 4


async def test_a_refused_batch_leaves_nothing_behind(log: EventLog, records: Make, run_name: str) -> None:
    await log.append(records(1))
    refused = records(3)
    with pytest.raises(ExpectationFailed):
        await log.append(refused, expect=Expectation(subject=f"run.{run_name}.run.w1", last=0))
    assert (await log.identity()).last == 1
    assert await log.append(refused) == [2, 3, 4]


async def test_many_writers_at_once_each_get_their_own_positions(log: EventLog, records: Make) -> None:
    batches = [records(5, key=f"w{number}") for number in range(12)]
    positions = await asyncio.gather(*(log.append(batch) for batch in batches))
    assert sorted(itertools.chain(*positions)) == list(range(1, 61))
    stored = {s.position: s.id for s in await log.read(after=0, limit=100)}
    for batch, at in zip(batches, positions, strict=True):
        assert [stored[position] for position in at] == [record.id for record in batch]
        assert at == list(range(at[0], at[0] + 5)), "a batch is contiguous"


async def test_exactly_one_of_many_rivals_creates_an_entity(
    log: EventLog, records: Make, run_name: str
) -> None:
    absent = Expectation(subject=f"run.{run_name}.run.entity", last=0)

    async def attempt() -> bool:
        try:
            await log.append(records(1, key="entity"), expect=absent)
        except ExpectationFailed:
            return False
        return True

    assert sum(await asyncio.gather(*(attempt() for _ in range(8)))) == 1


async def test_a_tail_gives_what_is_there_and_then_what_comes(log: EventLog, records: Make) -> None:
    written = records(9)
    await log.append(written[:4])

    async def later() -> None:
        await asyncio.sleep(0.2)
        await log.append(written[4:7])
        await asyncio.sleep(0.2)
        await log.append(written[7:])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(later())
        taken = await take(log, after=0, count=9)
    assert taken == expected(written)


async def test_a_tail_starts_after_its_position(log: EventLog, records: Make) -> None:
    written = records(8)
    await log.append(written)
    assert await take(log, after=5, count=3) == expected(written[5:], first=6)


async def test_a_tail_at_the_end_waits_for_the_next_event(log: EventLog, records: Make) -> None:
    await log.append(records(2))
    nxt = records(1)

    async def later() -> None:
        await asyncio.sleep(0.3)
        await log.append(nxt)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(later())
        assert await take(log, after=2, count=1) == expected(nxt, first=3)


async def test_a_long_log_is_read_whole_and_contiguous(log: EventLog, records: Make) -> None:
    written = records(2500, size=200)
    for start in range(0, 2500, 500):
        await log.append(written[start : start + 500])
    assert await take(log, after=0, count=2500) == expected(written)


async def test_large_events_pass(log: EventLog, records: Make) -> None:
    written = records(30, size=MAX_EVENT_BYTES)
    for start in range(0, 30, 2):
        await log.append(written[start : start + 2])
    assert await take(log, after=0, count=30) == expected(written)
    assert [s.id for s in await log.read(after=28, limit=5)] == [record.id for record in written[28:]]


async def test_several_tails_do_not_disturb_each_other(log: EventLog, records: Make) -> None:
    written = records(1200)
    await log.append(written[:600])
    await log.append(written[600:])
    async with asyncio.timeout(20), aclosing(log.tail(after=0)) as slow:
        first = await anext(slow)
        assert await take(log, after=0, count=1200) == expected(written)
        taken = [stored.id for stored in first]
        async for batch in slow:
            taken += [stored.id for stored in batch]
            if len(taken) == 1200:
                break
    assert taken == [record.id for record in written]


async def test_the_last_event_under_a_subject_or_wildcard_is_found(
    log: EventLog, records: Make, run_name: str
) -> None:
    await log.append(records(2, key="a.x"))
    await log.append(records(3, key="b.y"))
    await log.append(records(1, key="a.z"))
    under = {}
    for pattern in ("run.a.x", "run.a.>", "run.b.>", "run.*.y", ">", "run.c.>"):
        stored = await log.last_under(f"run.{run_name}.{pattern}")
        under[pattern] = stored.position if stored else None
    assert under == {"run.a.x": 2, "run.a.>": 6, "run.b.>": 5, "run.*.y": 5, ">": 6, "run.c.>": None}


@pytest.mark.parametrize("pattern", ["a.x", "a.>", "b.y", "*.x", ">", "c.>"])
async def test_the_last_event_under_a_subject_up_to_a_position(
    log: EventLog, records: Make, run_name: str, pattern: str
) -> None:
    keys = ["a.x", "b.y", "a.x", "a.z", "b.x", "b.y"]
    for key in keys:
        await log.append(records(1, key=key))
    subject = f"run.{run_name}.run.{pattern}"
    for until in range(9):
        under = [at for at, key in enumerate(keys[:until], 1) if matches(pattern, key)]
        stored = await log.last_under(subject, until=until)
        assert (stored.position if stored else 0) == max(under, default=0)


async def test_identity_names_the_run_its_first_event_and_its_end(
    log: EventLog, records: Make, run_name: str
) -> None:
    empty = await log.identity()
    assert (empty.run, empty.first_digest, empty.first, empty.last) == (run_name, b"", 0, 0)
    written = records(3)
    await log.append(written)
    identity = await log.identity()
    assert identity.first_digest == sha256(written[0].data).digest()
    assert (identity.first, identity.last) == (1, 3)


async def test_a_full_log_refuses_and_goes_on_once_there_is_room(
    tight: tuple[EventLog, Callable[[], Awaitable[None]]], records: Make
) -> None:
    log, make_room = tight
    fitting, rest = records(4, size=20_000), records(4, size=20_000)
    await log.append(fitting)
    with pytest.raises(LogFull, match=r"log\.max_bytes"):
        await log.append(rest)
    assert (await log.identity()).last == 4, "a refused batch leaves nothing behind"
    assert await log.append(fitting) == [1, 2, 3, 4], "what is stored is still recognised"
    await make_room()
    assert await log.append(rest) == [5, 6, 7, 8]


@pytest.fixture
async def tight(
    adapter: str, broker: LiveBroker, connect_as: Connect, run_name: str, tmp_path: Path
) -> tuple[EventLog, Callable[[], Awaitable[None]]]:
    """A log with room for 100 kB, and what makes room."""
    if adapter == "jetstream":
        connection = await connect_as(broker, "admin")
        settings = LogSettings(max_bytes=100_000, append_timeout_s=20)
        stream = await JetStreamLog.create_or_open(connection, run_name, settings)

        async def enlarge() -> None:
            await stream.resize(1_000_000)

        return stream, enlarge
    faults = Faults(seed=5, lost_request=0.2, lost_reply=0.2) if adapter == "faulty" else None
    log = MemoryLog(run_name, max_bytes=100_000, faults=faults)
    if adapter == "archived":
        log = ArchivedLog(run_name, tmp_path, max_bytes=100_000)

    async def more() -> None:
        log.max_bytes = 1_000_000

    return log, more
