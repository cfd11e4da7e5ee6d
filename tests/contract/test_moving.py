"""A log's beginning moves to the archive: announced, verified, never too early, and read as one sequence ever after."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from conftest import Connect, LiveBroker

from hindcast.core.domain.task import Task
from hindcast.core.errors import CorruptEvent, ExpectationFailed, ForeignLog
from hindcast.core.settings.schema import LogSettings
from hindcast.events.archive.continued_log import ContinuedLog
from hindcast.events.archive.errors import ArchiveDamaged, ArchiveMissing
from hindcast.events.archive.manifest import load, segment_path
from hindcast.events.catalogue import EpisodeCancelled, EpisodeRequested, SegmentArchived, WaitExceeded
from hindcast.events.envelope import Fact, Record, Stored
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.subjects import subject_of
from hindcast.storage.archive.archiver import Archiver
from hindcast.storage.archive.log_mover import Mover, OpenEpisodes, floor_of
from hindcast.storage.blobs.store import BlobStore
from stories.archive_story import QUICK, open_writer, plain

pytestmark = pytest.mark.broker

LATER_S = 1e6
"""Seconds after which the archiver looks at the clock again in these tests: everything is old then."""


class Bench:
    """A stream, its archive, and who moves from the one to the other."""

    def __init__(self, logs: dict[str, JetStreamLog], publisher: Publisher, place: Path) -> None:
        self.logs = logs
        self.stream = logs["archiver"]
        self.place = place
        self.folder = place / "archive"
        self.whole: EventLog = ContinuedLog(self.folder, logs["reader"], first=1)
        self.publisher = publisher
        self.episodes = OpenEpisodes()

    async def tell(self, role: str, *facts: Fact) -> None:
        """Facts by a role."""
        async with Publisher(
            self.logs[role], producer=f"{role}.1", code_rev="t", settings=QUICK
        ) as publisher:
            for fact in facts:
                await publisher.publish(fact, entity="e")

    async def waits(self, count: int) -> None:
        """Events of no meaning."""
        facts = [WaitExceeded(setting="s", limit_s=number, waited_for="w") for number in range(count)]
        await self.tell("actor", *facts)

    async def archive(self) -> None:
        """What the archiver does, up to where the stream ends."""
        writer = open_writer(self.folder, run=self.stream.run, segment_bytes=1500)
        try:
            blobs = BlobStore(self.place / "blobs")
            archiver = Archiver(self.stream, blobs, writer, pages=True, watch=self.episodes.take)
            for _ in range(2):  # the second time finds a segment to begin
                await archiver.run(follow=False)
        finally:
            writer.close()

    def mover(self, *, keep_events: int = 5, keep_s: float = 0.0, clock_s: float = 2e9 + LATER_S) -> Mover:
        """A new one, as after a start."""
        return Mover(
            self.whole,
            self.stream,
            self.folder,
            self.publisher,
            self.episodes,
            keep_events=keep_events,
            keep_s=keep_s,
            clock=lambda: clock_s,
        )

    async def move(self) -> int:
        mover = self.mover()
        await mover.announce()
        return await mover.purge()

    async def live(self) -> int:
        """First position in the stream."""
        return (await self.stream.identity()).first


@pytest.fixture
async def made(
    broker: LiveBroker,
    connect_as: Connect,
    jetstream_log: JetStreamLog,
    log_settings: LogSettings,
    tmp_path: Path,
) -> AsyncIterator[Bench]:
    logs = {
        role: await JetStreamLog.open(await connect_as(broker, role), jetstream_log.run, log_settings)
        for role in ("archiver", "actor", "curriculum", "reader")
    }
    async with Publisher(logs["archiver"], producer="archiver.1", code_rev="t", settings=QUICK) as publisher:
        bench = Bench(logs, publisher, tmp_path)
        for _ in range(4):
            await bench.waits(20)
            await bench.archive()
        yield bench


async def stored_in(log: EventLog) -> list[tuple[int, str, str, bytes]]:
    events: list[Stored] = []
    while batch := await log.read(after=len(events), limit=30):
        events += batch
    return plain(events)


async def test_what_was_said_last_up_to_a_position_is_found_on_either_side(made: Bench) -> None:
    """Of an entity without looking through the archive each time: every start of an episode asks."""
    for number in range(3):
        fact = EpisodeCancelled(episode=f"e{number}", task_id="t", reason="drain", detail="")
        log = made.logs["curriculum"]
        async with Publisher(log, producer="curriculum.1", code_rev="t", settings=QUICK) as publisher:
            await publisher.decide(fact, entity=f"e{number}")
        await made.waits(20)
        await made.archive()
    whole = await stored_in(made.whole)
    await made.move()
    assert await made.live() > 105
    for name in ("e0", "e1", "e2", "e3"):
        subject = subject_of(made.whole.run, EpisodeCancelled, key=name)
        at = next((position for position, under, *_ in whole if under == subject), 0)
        for until in (None, 0, max(0, at - 1), at, at + 1, 90, await made.live(), len(whole)):
            found = await made.whole.last_under(subject, until=until)
            assert (found.position if found else 0) == (at if until is None or until >= at else 0)
    subject = subject_of(made.whole.run, EpisodeCancelled, key="new")
    assert await made.whole.last_under(subject) is None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hindcast.events.archive.reader.decode_frame", None)
        patched.setattr("hindcast.events.archive.reader.CACHED_FRAMES", 0)
        assert await made.whole.last_under(subject) is None


class TestMoved:
    async def test_what_is_archived_is_announced_and_forgotten_and_reads_as_before(self, made: Bench) -> None:
        await made.waits(6)
        before = await stored_in(made.whole)
        until = await made.move()
        segments = load(made.folder).segments
        assert until == segments[-1].last
        assert await made.live() == until + 1 > 1
        after = await stored_in(made.whole)
        assert after[: len(before)] == before
        facts = [r.fact async for r in read(made.whole) if isinstance(r.fact, SegmentArchived)]
        assert [(f.first, f.last, f.sha256) for f in facts] == [(s.first, s.last, s.sha256) for s in segments]
        identity = await made.whole.identity()
        assert (identity.first, identity.last) == (1, len(after))

    async def test_announced_once_whoever_starts_again(self, made: Bench) -> None:
        assert await made.mover().announce() == len(load(made.folder).segments)
        assert await made.mover().announce() == 0
        await made.mover().purge()
        assert await made.mover().announce() == 0

    async def test_a_reader_that_falls_behind_the_beginning_goes_on_in_the_archive(self, made: Bench) -> None:
        expected = await stored_in(made.whole)
        async with asyncio.timeout(60), aclosing(made.whole.tail(after=0)) as batches:
            taken = await anext(batches)  # whatever has arrived by then
        async with asyncio.timeout(60), aclosing(made.whole.tail(after=len(taken))) as batches:
            await made.move()
            async for batch in batches:
                taken += batch
                if len(taken) >= len(expected):
                    break
        assert plain(taken)[: len(expected)] == expected

    async def test_an_expectation_may_name_what_is_archived(self, made: Bench) -> None:
        subject = f"run.{made.stream.run}.notice.actor.>"
        last = await made.whole.last_under(subject)
        assert last is not None
        await made.tell("curriculum", *[WaitExceeded(setting="s", limit_s=1, waited_for="w")] * 30)
        await made.archive()
        assert await made.move() >= last.position
        found = await made.whole.last_under(subject)
        assert found is not None
        assert found.position == last.position
        writing = ContinuedLog(made.folder, made.logs["actor"], first=1)
        fact = WaitExceeded(setting="s", limit_s=1, waited_for="w")
        async with Publisher(writing, producer="actor.1", code_rev="t", settings=QUICK) as publisher:
            with pytest.raises(ExpectationFailed):
                await publisher.decide(
                    fact, entity="e", expect=Expectation(subject=subject, last=last.position - 1)
                )
            await publisher.decide(fact, entity="e", expect=Expectation(subject=subject, last=last.position))

    async def test_what_was_created_once_is_not_created_again_from_the_archive(self, made: Bench) -> None:
        subject = f"run.{made.stream.run}.notice.actor.1.once"
        data = made.logs["actor"]
        once = Record(subject, (await made.whole.read(after=0, limit=1))[0].data, "once")
        absent = Expectation(subject=subject, last=0)
        await data.append([once], expect=absent)
        position = (await data.identity()).last
        writer = open_writer(made.folder, run=made.stream.run, segment_bytes=1)
        writer.append(await data.read(after=writer.last, limit=500))
        writer.close()
        await made.stream.purge(until=position)
        writing = ContinuedLog(made.folder, data, first=1)
        with pytest.raises(ExpectationFailed, match=f"is at position {position}, not 0"):
            await writing.append([Record(subject, b"again", "again")], expect=absent)

    async def test_without_its_archive_the_beginning_is_missed_with_a_way_out(self, made: Bench) -> None:
        await made.move()
        lost = ContinuedLog(made.place / "elsewhere", made.logs["reader"], first=1)
        with pytest.raises(
            ArchiveMissing, match=r"position 1 of run .* was moved to the archive .* storage\.archive"
        ):
            await lost.read(after=0, limit=1)
        other = made.place / "other"
        writer = open_writer(other, run=made.stream.run)
        writer.append(await ContinuedLog(made.folder, made.logs["reader"], first=1).read(after=0, limit=3))
        writer.close()
        with pytest.raises(
            CorruptEvent, match=r"positions 4 to .* are neither in the broker nor in the archive"
        ):
            await ContinuedLog(other, made.logs["reader"], first=1).identity()


class TestNotTooEarly:
    """Nothing leaves the broker that somebody may still need."""

    async def test_before_it_is_announced(self, made: Bench) -> None:
        assert await made.mover().purge() == 0

    async def test_the_latest_events(self, made: Bench) -> None:
        mover = made.mover(keep_events=10_000)
        await mover.announce()
        assert await mover.purge() == 0

    async def test_what_is_young(self, made: Bench) -> None:
        mover = made.mover(keep_s=1e10)
        await mover.announce()
        assert await mover.purge() == 0

    async def test_what_came_while_the_archiver_watched_however_far_a_clock_jumps(self, made: Bench) -> None:
        """By the wall clock everything is old: what was there at the first look by its own time, what came later by ours."""
        mover = made.mover(keep_s=3600)
        await mover.announce()
        there = (await made.stream.identity()).last
        await mover.purge()
        first = await made.live()
        for _ in range(3):
            await made.waits(20)
            await made.archive()
        await mover.announce()
        await mover.purge()
        assert first <= await made.live() <= there + 1, "nothing that came after the first look"
        assert [segment.last for segment in load(made.folder).segments][-1] > there

    async def test_what_a_work_queue_has_to_do(self, made: Bench, jetstream_log: JetStreamLog) -> None:
        await jetstream_log.ensure_queue("episodes", family="notice")
        queue = await made.logs["actor"].open_queue("episodes", family="notice")
        async with asyncio.timeout(20):
            (delivery,) = await queue.fetch(1, wait_s=10)
            assert await made.move() == 0
            await delivery.ack()
            rest = await queue.fetch(200, wait_s=1)
            for other in rest:
                await other.ack()
            while floor_of(await made.stream.served()) is not None:  # noqa: ASYNC110 - told by the broker
                await asyncio.sleep(0.05)
        assert await made.move() > 0

    async def test_what_an_open_episode_began_in(self, made: Bench) -> None:
        await made.tell("curriculum", requested("ep_1"))
        await made.waits(60)
        await made.archive()
        asked = made.episodes.oldest
        assert asked is not None
        assert 0 < await made.move() < asked
        await made.tell(
            "curriculum", EpisodeCancelled(episode="ep_1", task_id="t", reason="drained", detail="")
        )
        await made.waits(20)
        await made.archive()
        assert await made.move() > asked

    async def test_what_the_archive_does_not_hold_whole(self, made: Bench) -> None:
        mover = made.mover()
        await mover.announce()
        path = segment_path(made.folder, load(made.folder).segments[0].first)
        content = bytearray(path.read_bytes())
        content[-50] ^= 1
        path.write_bytes(content)
        with pytest.raises(ArchiveDamaged, match="is damaged: its sha256"):
            await mover.purge()
        assert await made.live() == 1

    async def test_what_is_another_event_in_the_archive(self, made: Bench) -> None:
        other = MemoryLog(made.stream.run)
        async with Publisher(other, producer="actor.1", code_rev="t", settings=QUICK) as publisher:
            for number in range(60):
                await publisher.publish(WaitExceeded(setting="s", limit_s=number, waited_for="w"), entity="e")
        made.folder = made.place / "other"
        writer = open_writer(made.folder, run=made.stream.run, segment_bytes=1500)
        for start in range(0, 60, 20):
            writer.append(other.events[start : start + 20])
        writer.close()
        mover = made.mover()
        await mover.announce()
        with pytest.raises(ForeignLog, match="is another event in the broker than in the archive"):
            await mover.purge()
        assert await made.live() == 1


def requested(episode: str) -> EpisodeRequested:
    task = Task(environment="store", family="f", seed=1, instruction="i", goal={}, max_steps=3)
    return EpisodeRequested(
        episode=episode,
        task=task,
        group="g",
        member=0,
        group_size=1,
        attempt=0,
        origin="online",
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=60.0,
    )


def test_nobody_reading_needs_nothing() -> None:
    assert floor_of([]) is None
