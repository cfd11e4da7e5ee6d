"""Two logs read as one, in memory and on JetStream: nobody who reads can tell where the one ends."""

import itertools
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from conftest import Connect, LiveBroker
from hypothesis import given
from hypothesis import strategies as st

from fakes.watched_reads import watch_reads
from hindcast.core.errors import CorruptEvent, ExpectationFailed
from hindcast.core.settings.schema import LogSettings
from hindcast.events.archive import reader
from hindcast.events.envelope import UNREAD, Record, Stored
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.joined_log import GrowingLog, JoinedLog
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import Ancestor, EventLog, Expectation
from stories.archive_story import ArchivedLog

pytestmark = pytest.mark.broker

_ids = itertools.count()


def record(run: str, key: str = "a") -> Record:
    number = next(_ids)
    return Record(f"run.{run}.run.{key}", f"event {number}".encode(), f"joined-{number}")


@pytest.fixture
async def streams(
    broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings
) -> tuple[JetStreamLog, JetStreamLog]:
    admin = await connect_as(broker, "admin")
    return (
        await JetStreamLog.create_or_open(admin, run_name, log_settings),
        await JetStreamLog.create_or_open(admin, f"{run_name}-fork", log_settings, first=6),
    )


@pytest.fixture(params=["memory", "jetstream"])
def parts(request: pytest.FixtureRequest, run_name: str) -> tuple[GrowingLog, GrowingLog]:
    if request.param == "memory":
        return MemoryLog(run_name), MemoryLog(f"{run_name}-fork", first=6)
    found: tuple[GrowingLog, GrowingLog] = request.getfixturevalue("streams")
    return found


@pytest.fixture
async def joined(parts: tuple[GrowingLog, GrowingLog], run_name: str) -> tuple[EventLog, JoinedLog]:
    """A parent of eight events that went on after the fifth, where its fork begins with two of its own."""
    older, newer = parts
    child = newer.run
    for key in "aabbcaab":
        await older.append([record(run_name, key)])
    empty = JoinedLog(older, newer, at=5)
    assert (await empty.identity()).last == 5
    assert await newer.append([record(child, "a"), record(child, "d")]) == [6, 7]
    return older, JoinedLog(older, newer, at=5)


async def taken(log: EventLog, *, after: int, count: int, headers: bool = True) -> list[Stored]:
    found: list[Stored] = []
    async with aclosing(log.tail(after=after, headers=headers)) as batches:
        async for batch in batches:
            found += batch
            if len(found) >= count:
                return found
    raise AssertionError("a tail ended")


async def test_reading_and_following_go_through_both(joined: tuple[EventLog, JoinedLog]) -> None:
    older, log = joined
    whole = await taken(log, after=0, count=7)
    assert [stored.position for stored in whole] == [1, 2, 3, 4, 5, 6, 7]
    assert whole[:5] == await older.read(after=0, limit=5)
    for after in range(8):
        read: list[Stored] = []
        while batch := await log.read(after=after + len(read), limit=3):
            read += batch
        assert [(s.position, s.data, s.id) for s in read] == [
            (s.position, s.data, s.id) for s in whole[after:]
        ]
    identity = await log.identity()
    assert (identity.first, identity.last, identity.first_digest) == (
        1,
        7,
        (await older.identity()).first_digest,
    )
    assert log.lineage == (Ancestor(run=older.run, until=5),)


async def test_following_without_headers_goes_through_both(
    joined: tuple[EventLog, JoinedLog], request: pytest.FixtureRequest
) -> None:
    """A part on JetStream is read without headers, on either side of the fork; one in memory has them at hand."""
    _, log = joined
    whole = await taken(log, after=0, count=7)
    found = await taken(log, after=0, count=7, headers=False)
    assert [(one.position, one.data) for one in found] == [(one.position, one.data) for one in whole]
    bare = request.node.callspec.params["parts"] == "jetstream"
    assert [one.id is UNREAD for one in found] == [bare] * 7


@pytest.mark.parametrize(("key", "position"), [("a", 6), ("b", 4), ("c", 5), ("d", 7), ("e", None)])
async def test_the_last_event_under_a_subject_is_looked_for_up_to_the_fork(
    joined: tuple[EventLog, JoinedLog], key: str, position: int | None
) -> None:
    """The parent's own later `a` and `b` are none of the fork's."""
    _, log = joined
    last = await log.last_under(f"run.{log.run}.run.{key}")
    assert (last.position if last else None) == position


@pytest.mark.parametrize(("key", "last", "holds"), [("b", 4, True), ("b", 3, False), ("b", 0, False), ("e", 0, True), ("c", 5, True),
                                                    ("a", 2, False), ("a", 6, True), ("d", 5, False)])  # fmt: skip
async def test_an_expectation_may_name_an_event_of_the_parent(
    joined: tuple[EventLog, JoinedLog], key: str, last: int, holds: bool
) -> None:
    """Also that there is none: what the parent's prefix holds exists."""
    _, log = joined
    subject = f"run.{log.run}.run.{key}"
    expect = Expectation(subject=subject, last=last)
    if holds:
        assert await log.append([record(log.run, key)], expect=expect) == [8]
    else:
        with pytest.raises(ExpectationFailed):
            await log.append([record(log.run, key)], expect=expect)
        assert (await log.identity()).last == 7


async def test_deciding_in_a_fork_does_not_look_through_its_prefix(
    parts: tuple[GrowingLog, GrowingLog], run_name: str
) -> None:
    """A fork's episodes bear the names of those that its parent went on to play: it decides about each of them."""
    older, newer = parts
    for key in "abcdefgh":
        await older.append([record(run_name, key)])
    reads = watch_reads(older)
    log = JoinedLog(older, newer, at=5)
    none = [Expectation(subject=f"run.{newer.run}.run.{key}", last=0) for key in "fgh"]
    assert [await log.append([record(newer.run, "x")], expect=expect) for expect in none] == [[6], [7], [8]]
    assert reads == []


async def test_deciding_in_a_fork_of_an_archive_looks_through_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = ArchivedLog("old", tmp_path), MemoryLog("fork", first=6)
    for key in ("a", "b", "a", "c", "b", "d", "d"):
        await older.append([Record(f"run.old.verdict.{key}", b"event", f"old-{next(_ids)}")])
    log = JoinedLog(older, newer, at=5)
    assert await log.last_under("run.fork.verdict.d") is None
    opened: list[int] = []
    decode_frame = reader.decode_frame
    monkeypatch.setattr(reader, "CACHED_FRAMES", 0)
    monkeypatch.setattr(
        reader,
        "decode_frame",
        lambda content, *, frame: opened.append(frame.first) or decode_frame(content, frame=frame),
    )
    for key in ("d", "e", "f"):
        assert await log.append(
            [Record(f"run.fork.verdict.{key}", b"own", f"own-{key}")],
            expect=Expectation(subject=f"run.fork.verdict.{key}", last=0),
        )
    assert opened == []
    with pytest.raises(ExpectationFailed):
        await log.append(
            [Record("run.fork.verdict.a", b"own", "own-a")],
            expect=Expectation(subject="run.fork.verdict.a", last=0),
        )
    found = await log.last_under("run.fork.verdict.a")
    assert found is not None
    assert found.position == 3


async def test_under_a_wildcard_of_very_many_subjects_the_last_one_is_found_all_the_same(
    streams: tuple[JetStreamLog, JetStreamLog], run_name: str
) -> None:
    """The broker gives the last events of 1024 subjects at once."""
    older, _ = streams
    for start in (0, 600):
        await older.append([record(run_name, f"k{number}") for number in range(start, start + 600)])
    last = await older.last_under(f"run.{run_name}.run.>", until=1100)
    assert last is not None
    assert last.position == 1100


async def test_a_parent_that_lost_its_end_is_refused(run_name: str) -> None:
    older, newer = MemoryLog(run_name), MemoryLog("fork", first=6)
    await older.append([record(run_name)])
    with pytest.raises(CorruptEvent, match="ends at 1"):
        await JoinedLog(older, newer, at=5).identity()


@given(cuts=st.lists(st.integers(1, 12), min_size=1, max_size=4), after=st.integers(0, 12))
async def test_any_chain_of_forks_reads_like_one_log(cuts: Sequence[int], after: int) -> None:
    events = [record("any", key) for key in "abcabcabcabc"]
    one = MemoryLog("any")
    await one.append(events)
    log: EventLog = one
    for number, at in enumerate(sorted(cuts)):
        newer = MemoryLog(f"fork-{number}", first=at + 1)
        for entry in events[at:]:
            await newer.append([entry])
        log = JoinedLog(log, newer, at=at)
    assert await log.read(after=after, limit=1) == await one.read(after=after, limit=1)
    if after < 12:
        assert await taken(log, after=after, count=12 - after) == await one.read(after=after, limit=12)
    assert [ancestor.until for ancestor in log.lineage] == sorted({a.until for a in log.lineage})
