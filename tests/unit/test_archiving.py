"""The archiver: goes on where its folder ends, on the same log only, and keeps the blobs that are still needed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import hindcast.storage.archive.archiver as archiving
from fakes.bare_step import bare_step
from hindcast.app.runs.archive import finish_archive
from hindcast.core.errors import CorruptEvent, ForeignLog
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.check import check_archive
from hindcast.events.archive.errors import ArchiveBusy, ArchiveDamaged
from hindcast.events.archive.index import index_path
from hindcast.events.archive.manifest import load, segment_path
from hindcast.events.catalogue import BlobReleased, CheckpointSaved, WaitExceeded
from hindcast.events.envelope import BlobRef, Fact, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.archive.archiver import Archiver, ArchiveReport, archive_blobs
from hindcast.storage.archive.check import check_whole
from hindcast.storage.blobs.store import BlobStore
from stories.archive_story import QUICK, RUN, all_of, open_writer, plain, small_log, write_archive
from stories.recorded_home import make_home


class Bench:
    """A log, its blobs, and a folder to archive them into."""

    def __init__(self, log: MemoryLog, place: Path) -> None:
        self.log: EventLog = log
        self.memory = log
        self.blobs = BlobStore(place / "blobs")
        self.folder = place / "archive"
        self.kept = archive_blobs(self.folder)

    async def append(self, *facts: Fact) -> None:
        async with Publisher(self.memory, producer="learner.1", code_rev="test", settings=QUICK) as publisher:
            for fact in facts:
                await publisher.publish(fact, entity="e")

    def saved(self, content: bytes, *, update: int = 1) -> CheckpointSaved:
        """A checkpoint whose blob is there."""
        return CheckpointSaved(
            update=update, batch=0, version=1, state="0" * 64, blob=self.blobs.put(content)
        )

    async def archive(self, *, pages: bool = True) -> ArchiveReport:
        writer = open_writer(self.folder, run=self.log.run, segment_bytes=2000)
        try:
            archiver = Archiver(self.log, self.blobs, writer, pages=pages)
            await archiver.run(follow=False)
            return archiver.report()
        finally:
            writer.close()


@pytest.fixture
async def made(tmp_path: Path) -> Bench:
    return Bench(await small_log(20), tmp_path)


def release(blob: BlobRef) -> BlobReleased:
    return BlobReleased(blob=blob, reason="old")


class TestGoingOn:
    async def test_each_time_it_takes_what_is_new(self, made: Bench) -> None:
        first = await made.archive()
        assert (first.events, first.first, first.last) == (20, 1, 20)
        assert (await made.archive()).events == 0
        await made.append(WaitExceeded(setting="s", limit_s=1, waited_for="w"))
        second = await made.archive()
        assert (second.events, second.last) == (1, 21)
        assert plain(all_of(made.folder)) == plain(made.memory.events)
        assert not check_whole(made.folder).defects

    async def test_following_it_takes_what_comes_and_a_stop_keeps_it(
        self, made: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(archiving, "LINGER_S", 0.05)
        monkeypatch.setattr(archiving, "SETTLE_S", 0.0)
        writer = open_writer(made.folder)
        archiver = Archiver(made.log, made.blobs, writer, pages=True)
        blob = made.saved(b"weights")
        async with asyncio.timeout(30):
            following = asyncio.create_task(archiver.run(follow=True))
            await until(lambda: writer.last == 20)
            await made.append(blob)
            await until(lambda: load(made.folder).blobs.through == 21)
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
        writer.close()
        noted = load(made.folder)
        assert noted.open is not None
        assert (noted.open.last, made.kept.has(blob.blob)) == (21, True)

    async def test_another_log_under_the_same_name_is_refused(self, made: Bench) -> None:
        await made.archive()
        made.log = await small_log(30)
        with pytest.raises(ForeignLog, match="holds another event at position 20"):
            await made.archive()
        made.log = await small_log(3)
        with pytest.raises(ForeignLog, match="ends at position 3"):
            await made.archive()

    async def test_a_log_that_begins_behind_the_archives_end_is_refused(self, made: Bench) -> None:
        write_archive(made.folder, made.memory.events[:5])
        made.log = later = MemoryLog(RUN, first=10)
        await later.append([])
        later.events.extend(made.memory.events[9:])
        with pytest.raises(ForeignLog, match=r"begins at position 10, but the archive in .* ends at 5"):
            await made.archive()

    async def test_two_archivers_at_once_are_one_too_many(self, made: Bench) -> None:
        writer = open_writer(made.folder)
        with pytest.raises(ArchiveBusy):
            await made.archive()
        writer.close()


class TestDamage:
    async def test_a_damaged_event_is_not_archived_and_those_before_it_are(self, made: Bench) -> None:
        bent = made.memory.events[12]
        data = bytes([bent.data[0] ^ 8]) + bent.data[1:]
        made.memory.events[12] = Stored(13, bent.subject, data, bent.id)
        with pytest.raises(CorruptEvent, match="position 13"):
            await made.archive()
        assert plain(all_of(made.folder)) == plain(made.memory.events[:12])

    async def test_an_event_that_its_successor_does_not_vouch_for_stops_it(self, made: Bench) -> None:
        bent = made.memory.events[12]
        data = bent.data.replace(b"some.setting", b"same.setting")
        made.memory.events[12] = Stored(13, bent.subject, data, bent.id)
        with pytest.raises(CorruptEvent, match="the bytes at position 13 changed"):
            await made.archive()

    async def test_an_event_under_another_runs_subject_is_refused(self, made: Bench) -> None:
        old = made.memory.events[4]
        made.memory.events[4] = Stored(5, old.subject.replace(RUN, "r_other"), old.data, old.id)
        with pytest.raises(CorruptEvent, match=r"position 5 .*was recorded by run r_archive"):
            await made.archive()


class TestBlobs:
    async def test_a_page_that_the_run_lets_go_of_stays_in_the_archive_and_is_missed_in_no_later_one(
        self, made: Bench
    ) -> None:
        page = made.blobs.put(b"page")
        await made.append(msgspec.structs.replace(bare_step("ep", 0), observation=page))
        await made.archive()
        await made.append(BlobReleased(blob=page, reason="old", page=True))
        made.blobs.release(page)
        await made.archive()
        assert made.kept.has(page)
        assert not check_whole(made.folder).defects
        later = Bench(made.memory, made.folder.parent / "later")
        later.blobs = made.blobs
        assert (await later.archive()).missing == ()
        assert not check_whole(later.folder).defects

    async def test_what_is_named_is_copied_and_what_was_let_go_of_before_is_not(self, made: Bench) -> None:
        old, new = made.saved(b"old"), made.saved(b"new", update=2)
        await made.append(old, new, release(old.blob))
        report = await made.archive()
        assert (report.blobs, report.blob_bytes, report.missing) == (1, 3, ())
        assert (made.kept.has(new.blob), made.kept.has(old.blob)) == (True, False)
        checked = check_whole(made.folder)
        assert (checked.blobs, checked.blob_bytes, checked.defects) == (1, 3, ())

    async def test_what_is_let_go_of_later_leaves_the_archive_too(self, made: Bench) -> None:
        old = made.saved(b"old")
        await made.append(old)
        await made.archive()
        assert made.kept.has(old.blob)
        await made.append(release(old.blob))
        await made.archive()
        assert not made.kept.has(old.blob)
        assert not check_whole(made.folder).defects

    async def test_content_that_is_named_again_after_its_release_is_kept(self, made: Bench) -> None:
        one = made.saved(b"same")
        await made.append(one, release(one.blob), made.saved(b"same", update=3))
        await made.archive()
        assert made.kept.has(one.blob)

    async def test_a_missing_one_is_told_with_its_position_and_taken_when_it_is_back(
        self, made: Bench
    ) -> None:
        lost = made.saved(b"lost")
        await made.append(lost)
        made.blobs.release(lost.blob)
        report = await made.archive()
        assert [(blob.sha256, blob.position) for blob in report.missing] == [(lost.blob.sha256, 21)]
        assert [defect.position for defect in check_whole(made.folder).defects] == [21]
        assert (await made.archive()).missing == report.missing
        made.blobs.put(b"lost")
        assert (await made.archive()).missing == ()
        assert not check_whole(made.folder).defects

    async def test_a_damaged_one_is_not_copied(self, made: Bench) -> None:
        saved = made.saved(b"fresh")
        await made.append(saved)
        made.blobs.path(saved.blob).write_bytes(b"stale")
        report = await made.archive()
        assert len(report.missing) == 1
        assert "is damaged" in report.damaged[0]
        assert not made.kept.has(saved.blob)

    async def test_one_that_rots_in_the_archive_is_found(self, made: Bench) -> None:
        saved = made.saved(b"fresh")
        await made.append(saved)
        await made.archive()
        made.kept.path(saved.blob).write_bytes(b"stale")
        (defect,) = check_whole(made.folder).defects
        assert (defect.position, defect.where[:6]) == (21, "blobs/")

    async def test_what_a_crash_left_to_be_copied_is_copied_by_the_next(self, made: Bench) -> None:
        saved = made.saved(b"weights")
        await made.append(saved)
        write_archive(made.folder, made.memory.events)  # all its events, and it died before the blobs
        assert check_whole(made.folder).not_copied == 1
        report = await made.archive()
        assert (report.events, report.blobs) == (0, 1)


async def until(done: Callable[[], bool]) -> None:
    """Wait for a condition; the test's own timeout bounds it."""
    while not done():  # noqa: ASYNC110 - told by files
        await asyncio.sleep(0.01)


async def test_who_looks_for_a_family_passes_over_segments_without_it(made: Bench) -> None:
    """A start asks for the last event of a family: segments that cannot hold one are not even opened."""
    write_archive(made.folder, made.memory.events, segment_bytes=500)
    await made.append(made.saved(b"weights"))
    await made.archive()
    segments = load(made.folder).segments
    segment_path(made.folder, segments[0].first).unlink()
    log = ArchiveLog(made.folder)
    found = await log.last_under(f"run.{RUN}.learner.>")
    assert found is not None
    assert found.position == 21
    assert await log.last_under(f"run.{RUN}.snapshot.>") is None
    with pytest.raises(ArchiveDamaged, match="its file is missing"):
        await log.last_under(f"run.{RUN}.notice.nobody")


async def test_who_asks_for_one_entity_reads_only_the_segment_that_holds_it(made: Bench) -> None:
    """At every end of an episode it is asked whether there is one: of a log of months."""
    events = made.memory.events
    judged = [
        Stored(s.position, f"run.{RUN}.episode_end.ep_{s.position}", s.data, s.id, s.traceparent)
        for s in events
    ]
    write_archive(made.folder, judged, segment_bytes=500)
    assert not check_archive(made.folder).defects
    segments = load(made.folder).segments
    held = segment_path(made.folder, segments[1].first)
    whole = held.read_bytes()
    held.unlink()
    log = ArchiveLog(made.folder)
    for position in (segments[0].last, segments[-1].last, 20):
        found = await log.last_under(f"run.{RUN}.episode_end.ep_{position}")
        assert found is not None
        assert found.position == position
    assert await log.last_under(f"run.{RUN}.episode_end.ep_99") is None
    assert await log.last_under(f"run.{RUN}.episode_end.ep_20", until=19) is None
    with pytest.raises(ArchiveDamaged):
        await log.last_under(f"run.{RUN}.episode_end.ep_{segments[1].first}")
    held.write_bytes(whole)
    index = index_path(made.folder, segments[1].first)
    for content in (index.read_bytes()[:-1], b"", index.read_bytes()[:-1] + b"x"):
        index.write_bytes(content)
        assert check_archive(made.folder).defects, "a bent index is told"
        found = await ArchiveLog(made.folder).last_under(f"run.{RUN}.episode_end.ep_{segments[1].first}")
        assert found is not None, "and not believed"
    index.unlink()
    assert not check_archive(made.folder).defects


async def test_an_ended_run_is_archived_to_its_last_event_with_all_its_blobs(tmp_path: Path) -> None:
    """What roles say at their stop comes after the archiver has ended, and blobs were last copied some time before."""
    place = tmp_path / "archive"
    handle = await make_home(tmp_path / "home", [], run=RUN, overrides=[f"storage.archive={place}"])

    async def save(*contents: bytes) -> int:
        async with (
            handle.connect_log("learner") as log,
            Publisher(log, producer="learner.1", code_rev="test", settings=QUICK) as publisher,
        ):
            for content in contents:
                blob = handle.blobs.put(content)
                fact = CheckpointSaved(update=1, batch=0, version=1, state="0" * 64, blob=blob)
                await publisher.publish(fact, entity="e")
            return await publisher.commit()

    for contents in ([b"one", b"two"], [b"three"]):
        last = await save(*contents)
        report = await finish_archive(handle)
        assert report is not None
        assert (report.last, report.missing) == (last, ())
        assert handle.archive is not None
        assert load(handle.archive).blobs.through == last
        checked = check_whole(handle.archive)
        assert (checked.defects, checked.not_copied, checked.log.last) == ((), 0, last)
    assert report.blobs == 1


async def test_a_run_without_an_archive_has_none_to_finish(tmp_path: Path) -> None:
    assert await finish_archive(await make_home(tmp_path / "home", [])) is None
