"""An archive's files: what is cut is recovered or found, what is altered is found, and only one process writes."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import msgspec
import pytest
import zstandard

from hindcast.core.errors import DiskFull, ForeignLog
from hindcast.events.archive import format as segments
from hindcast.events.archive.check import check_archive
from hindcast.events.archive.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    ArchiveMissing,
    ArchiveUnknown,
    BeyondArchive,
)
from hindcast.events.archive.format import CHAIN_BYTES, FRAME_HEAD_BYTES, decode_header, frame_at
from hindcast.events.archive.manifest import Manifest, load, render, segment_path
from hindcast.events.archive.reader import ArchiveReader
from hindcast.events.envelope import Stored
from hindcast.events.log.hash_chain import RollingDigest
from stories.archive_story import (
    RUN,
    DyingDisk,
    PowerCut,
    QuickDisk,
    all_of,
    copy,
    open_writer,
    plain,
    small_log,
    write_archive,
)

EVENTS = 7


@pytest.fixture
async def events() -> list[Stored]:
    return (await small_log(EVENTS)).events


@pytest.fixture
def closed(events: list[Stored], tmp_path: Path) -> Path:
    """Three closed segments."""
    return write_archive(tmp_path / "closed", events, segment_bytes=500)


@pytest.fixture
def open_(events: list[Stored], tmp_path: Path) -> Path:
    """One open segment of three frames, of which nothing is noted."""
    return write_archive(tmp_path / "open", events[:5], batch=2, noted=False)


def frames_of(content: bytes) -> list[segments.Frame]:
    opening = decode_header(content)
    frames, at = [], opening.size
    while at < len(content):
        frames.append(frame_at(content, at))
        at = frames[-1].end
    return frames


def goes_on(folder: Path, events: list[Stored]) -> list[tuple[int, str, str, bytes]]:
    """Open the archive for writing, append what it lacks, and read it all."""
    writer = open_writer(folder, segment_bytes=500)
    writer.append(events[writer.last :])
    writer.close()
    assert not check_archive(folder).defects
    return plain(all_of(folder))


def put_back(folder: Path, place: Path, first_segment: bytes) -> None:
    """The archive at `folder` once more at `place`, with this as its only segment."""
    (place / "segments").mkdir(parents=True, exist_ok=True)
    for path in (place / "segments").iterdir():
        path.unlink()
    (place / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    segment_path(place, 1).write_bytes(first_segment)


def cuts(content: bytes) -> list[int]:
    """Sizes to cut a segment to: every one around where something begins or ends, and some within each body."""
    ends = (0, decode_header(content).size, *(frame.end for frame in frames_of(content)))
    near = {end + off for end in ends for off in range(-3, FRAME_HEAD_BYTES + 3)}
    near |= {end - CHAIN_BYTES + off for end in ends for off in (-1, 0, 1)}
    return sorted({*(size for size in near if 0 <= size < len(content)), *range(0, len(content), 13)})


class TestCut:
    """A file that ends too early, at whatever place."""

    def test_an_open_segment_is_recovered_to_its_last_whole_frame_and_gone_on_with(
        self, open_: Path, events: list[Stored], tmp_path: Path
    ) -> None:
        whole = segment_path(open_, 1).read_bytes()
        ends = [(frame.end, frame.last) for frame in frames_of(whole)]
        assert len(ends) == 3
        place = tmp_path / "cut"
        for size in cuts(whole):
            put_back(open_, place, whole[:size])
            standing = max((last for end, last in ends if end <= size), default=0)
            assert plain(all_of(place)) == plain(events[:standing]), f"cut to {size} bytes"
            report = check_archive(place)
            boundary = size in (0, decode_header(whole).size, *(end for end, _ in ends))
            assert (report.last, report.unfinished_bytes > 0) == (standing, not boundary)
            assert goes_on(place, events) == plain(events), f"cut to {size} bytes"

    def test_what_was_noted_of_an_open_segment_is_missed_by_readers_and_taken_again_by_the_archiver(
        self, events: list[Stored], tmp_path: Path
    ) -> None:
        folder = write_archive(tmp_path / "noted", events)
        place = tmp_path / "cut"
        whole = segment_path(folder, 1).read_bytes()
        for size in range(0, len(whole), 17):
            put_back(folder, place, whole[:size])
            with pytest.raises(
                ArchiveDamaged, match=rf"{1:020d}\.seg is damaged from position \d.*hindcast archive"
            ):
                ArchiveReader(place)
            assert check_archive(place).defects
            assert goes_on(place, events) == plain(events)

    def test_a_closed_segment_is_refused_with_its_name_its_positions_and_a_way_out(
        self, closed: Path, tmp_path: Path
    ) -> None:
        place = copy(closed, tmp_path / "cut")
        second = load(closed).segments[1]
        path = segment_path(place, second.first)
        whole = path.read_bytes()
        told = rf"{second.first:020d}\.seg \(positions {second.first} to {second.last}\) is damaged: it has \d+ bytes.*copy"
        for size in cuts(whole):
            path.write_bytes(whole[:size])
            assert ArchiveReader(place).following(0), "what stands before it can be read"
            with pytest.raises(ArchiveDamaged, match=told):
                ArchiveReader(place).following(second.first - 1)
            assert [defect.position for defect in check_archive(place).defects] == [second.first]
        path.unlink()
        with pytest.raises(ArchiveDamaged, match="its file is missing"):
            ArchiveReader(place).following(second.first)

    def test_a_manifest_is_refused(self, closed: Path, tmp_path: Path) -> None:
        place = copy(closed, tmp_path / "cut")
        whole = (closed / "manifest.json").read_bytes()
        for size in (*range(0, len(whole), 7), len(whole) - 1):
            (place / "manifest.json").write_bytes(whole[:size])
            with pytest.raises(ArchiveDamaged, match=r"manifest\.json is damaged"):
                load(place)


def places(content: bytes) -> Iterator[tuple[str, int]]:
    """A byte of every kind of place in a segment, by name."""
    size = decode_header(content).size
    yield from (("magic", 3), ("size of the header", 8), ("crc of the header", 13))
    yield from (("header", at) for at in range(16, size, 7))
    for number, frame in enumerate(frames_of(content)):
        at = frame.offset
        yield f"crc of frame {number}", at + 1
        yield f"length of frame {number}", at + 4
        yield f"high length of frame {number}", at + 7
        yield f"position of frame {number}", at + 8
        yield f"events of frame {number}", at + 16
        yield from ((f"body of frame {number}", at + FRAME_HEAD_BYTES + offset) for offset in (0, 9, 40))
        yield f"end of the body of frame {number}", frame.end - CHAIN_BYTES - 1
        yield f"chain of frame {number}", frame.end - CHAIN_BYTES
        yield f"end of the chain of frame {number}", frame.end - 1


def flip(path: Path, at: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


class TestFlippedBits:
    """One bit, at every kind of place."""

    def test_in_a_closed_segment(self, closed: Path, tmp_path: Path) -> None:
        place = copy(closed, tmp_path / "bent")
        for segment in load(closed).segments:
            path = segment_path(place, segment.first)
            whole = path.read_bytes()
            for name, at in places(whole):
                flip(path, at, at % 8)
                with pytest.raises(ArchiveDamaged, match="is damaged"):
                    ArchiveReader(place).following(segment.first - 1)
                (defect,) = check_archive(place).defects
                assert (defect.position, defect.where[-10:]) == (segment.first, path.name[-10:]), name
                path.write_bytes(whole)

    def test_in_the_noted_part_of_an_open_segment(self, events: list[Stored], tmp_path: Path) -> None:
        folder = write_archive(tmp_path / "noted", events)
        path = segment_path(folder, 1)
        whole = path.read_bytes()
        for name, at in places(whole):
            flip(path, at, at % 8)
            with pytest.raises(ArchiveDamaged):
                ArchiveReader(folder)
            assert check_archive(folder).defects, name
            with pytest.raises(ArchiveDamaged):
                open_writer(folder)  # it would cut off what nobody else may have
            assert len(path.read_bytes()) == len(whole)
            path.write_bytes(whole)

    def test_behind_what_was_noted_it_is_not_there_and_is_taken_again(
        self, open_: Path, events: list[Stored]
    ) -> None:
        path = segment_path(open_, 1)
        whole = path.read_bytes()
        for frame in frames_of(whole):
            flip(path, frame.offset + FRAME_HEAD_BYTES + 5, 2)
            assert plain(all_of(open_)) == plain(events[: frame.first - 1])
            assert check_archive(open_).unfinished_bytes == len(whole) - frame.offset
            path.write_bytes(whole)

    def test_in_the_manifest(self, closed: Path, tmp_path: Path) -> None:
        place = copy(closed, tmp_path / "bent")
        path = place / "manifest.json"
        whole = path.read_bytes()
        for at in range(len(whole)):
            flip(path, at, at % 8)
            with pytest.raises((ArchiveDamaged, ArchiveUnknown)):
                load(place)
            path.write_bytes(whole)

    def test_in_a_frame_after_its_segment_was_checked(self, closed: Path) -> None:
        reader = ArchiveReader(closed)
        assert [stored.position for stored in reader.following(0)] == [1, 2, 3]
        segment = load(closed).segments[1]
        reader.following(segment.first - 1)
        reader._cache.clear()
        flip(segment_path(closed, segment.first), segment.bytes - 60, 1)
        with pytest.raises(ArchiveDamaged, match=f"at positions {segment.first} to"):
            reader.following(segment.first - 1)


class TestSwapped:
    """Whole files in the wrong place."""

    def test_two_segments_exchanged(self, closed: Path) -> None:
        one, two = (segment_path(closed, segment.first) for segment in load(closed).segments[:2])
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
        assert len(check_archive(closed).defects) == 2

    async def test_a_segment_of_another_log_with_a_manifest_mended_to_name_it(
        self, closed: Path, tmp_path: Path
    ) -> None:
        """Only the chain tells: sizes, sha256 and the checksum of the manifest were all made to fit."""
        other = write_archive(tmp_path / "other", (await small_log(EVENTS)).events, segment_bytes=500)
        theirs = load(other).segments[1]
        segment_path(closed, theirs.first).write_bytes(segment_path(other, theirs.first).read_bytes())
        manifest = load(closed)
        ours = list(manifest.segments)
        ours[1] = theirs
        (closed / "manifest.json").write_bytes(
            render(msgspec.structs.replace(manifest, segments=tuple(ours)))
        )
        defects = check_archive(closed).defects
        assert [defect.position for defect in defects] == [theirs.first, ours[2].first]
        assert "another place" in defects[0].what

    async def test_an_open_segment_of_another_log(self, open_: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        writer = open_writer(other, run="r_other")
        writer.append((await small_log(3, run="r_other")).events)
        writer.close()
        segment_path(open_, 1).write_bytes(segment_path(other, 1).read_bytes())
        with pytest.raises(
            ArchiveDamaged, match=r"belongs to another archive.*says run 'r_other' from position 1"
        ):
            ArchiveReader(open_)
        assert check_archive(open_).defects

    def test_a_file_that_no_archiver_wrote(self, closed: Path) -> None:
        (closed / "segments" / "00000000000000000099.seg").write_bytes(b"")
        (defect,) = check_archive(closed).defects
        assert "does not know it" in defect.what


class TestClosing:
    """Segments are closed by size, and nothing is lost on the way."""

    def test_segments_are_named_by_their_first_position_and_tell_the_logs_digest(
        self, closed: Path, events: list[Stored]
    ) -> None:
        manifest = load(closed)
        assert [segment.first for segment in manifest.segments] == [1, 4, 7]
        rolling = RollingDigest()
        digests = [rolling.advance(segments.sha256(stored.data).digest()).hex() for stored in events]
        assert [segment.digest for segment in manifest.segments] == [
            digests[segment.last - 1] for segment in manifest.segments
        ]
        assert check_archive(closed).digest == digests[-1]

    @pytest.mark.parametrize("step", range(10))
    def test_a_crash_while_closing_loses_nothing(
        self, step: int, events: list[Stored], tmp_path: Path
    ) -> None:
        folder = tmp_path / "archive"
        open_writer(folder, segment_bytes=300).close()
        # header (write, sync, rename, folder), frame (write, sync), then index and manifest (four steps each) close it
        writer = open_writer(folder, segment_bytes=300, disk=DyingDisk(6 + step, 0.4))
        if step < 8:
            with pytest.raises(PowerCut):
                writer.append(events[:3])
        else:
            writer.append(events[:3])
        writer.close()
        assert plain(all_of(folder)) == plain(events[:3])
        assert goes_on(folder, events) == plain(events)

    def test_a_full_disk_leaves_whole_frames_and_is_gone_on_from(
        self, events: list[Stored], tmp_path: Path
    ) -> None:
        class Full(QuickDisk):
            room = 700

            def write(self, file: int, content: bytes) -> None:
                fitting = content[: max(0, self.room)]
                super().write(file, fitting)
                self.room -= len(content)
                if len(fitting) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        disk = Full()
        writer = open_writer(tmp_path / "archive", disk=disk)
        disk.room = 700
        writer.append(events[:2])
        with pytest.raises(DiskFull, match="up to position 2, and nothing is lost: make room"):
            writer.append(events[2:])
        assert check_archive(tmp_path / "archive").unfinished_bytes == 0
        disk.room = 10_000
        writer.append(events[2:])
        writer.close()
        assert plain(all_of(tmp_path / "archive")) == plain(events)


class TestWhoseFolder:
    """One writer, one run, nothing else."""

    def test_two_writers_are_fenced_and_the_second_is_told_who_the_first_is(
        self, events: list[Stored], tmp_path: Path
    ) -> None:
        first = open_writer(tmp_path / "archive")
        with pytest.raises(ArchiveBusy, match=rf"pid {os.getpid()}\) writes the archive"):
            open_writer(tmp_path / "archive")
        first.close()
        second = open_writer(tmp_path / "archive")
        first.note()  # a late word of the first changes nothing any more
        with pytest.raises(AssertionError):
            first.append(events)
        second.append(events)
        second.close()

    def test_the_fence_holds_between_processes_and_ends_with_them(self, tmp_path: Path) -> None:
        program = (
            "import sys, time; from stories.archive_story import open_writer; from pathlib import Path\n"
            "open_writer(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", program, tmp_path / "archive"],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ArchiveBusy, match=f"pid {holder.pid}"):
            open_writer(tmp_path / "archive")
        holder.kill()
        holder.wait()
        holder.stdout.close()
        open_writer(tmp_path / "archive").close()

    def test_another_runs_archive_and_foreign_folders_are_refused(self, closed: Path, tmp_path: Path) -> None:
        with pytest.raises(ForeignLog, match=f"holds the archive of run '{RUN}', not of 'r_other'"):
            open_writer(closed, run="r_other")
        (tmp_path / "letters").mkdir()
        (tmp_path / "letters" / "to-mother.txt").write_text("")
        with pytest.raises(ForeignLog, match=r"not empty: it holds to-mother\.txt"):
            open_writer(tmp_path / "letters")
        assert not (tmp_path / "letters" / "segments").exists()
        with pytest.raises(ArchiveMissing, match=r"no manifest\.json"):
            ArchiveReader(tmp_path / "letters")

    def test_events_that_do_not_follow_are_refused(self, events: list[Stored], tmp_path: Path) -> None:
        writer = open_writer(tmp_path / "archive")
        writer.append(events[:2])
        for wrong in (events[3:4], events[1:2]):
            with pytest.raises(ForeignLog, match="where 3 is due"):
                writer.append(wrong)
        writer.close()


def test_an_archive_may_begin_later_and_says_so_when_asked_for_what_is_before(
    events: list[Stored], tmp_path: Path
) -> None:
    folder = write_archive(tmp_path / "later", events[3:], batch=2, segment_bytes=600)
    assert plain(all_of(folder)) == plain(events[3:])
    with pytest.raises(BeyondArchive, match=r"begins at position 4 .*position 2 is not in it"):
        ArchiveReader(folder).following(1)
    assert check_archive(folder).first == 4


def test_a_newer_format_is_left_alone(closed: Path) -> None:
    newer = msgspec.json.encode({"format": 2, "anything": "else"})
    (closed / "manifest.json").write_bytes(newer)
    with pytest.raises(ArchiveUnknown, match=r"format 2; this Hindcast reads up to 1\. Update"):
        load(closed)


def test_a_segment_can_be_read_with_public_libraries_alone(closed: Path, events: list[Stored]) -> None:
    """The layout as documented, by somebody who has none of our code."""
    content = segment_path(closed, 1).read_bytes()
    assert content[:8] == b"HINDCAST"
    header_size = int.from_bytes(content[8:12], "little")
    assert msgpack.unpackb(content[16 : 16 + header_size])["first"] == 1
    at = 16 + header_size
    size = int.from_bytes(content[at + 4 : at + 8], "little")
    rows = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(content[at + 20 : at + 20 + size]))
    assert [(p, s, i, d) for p, s, i, d in rows] == plain(events[:3])


def test_a_manifest_has_one_form_only(closed: Path) -> None:
    written = (closed / "manifest.json").read_bytes()
    assert render(load(closed)) == written
    (closed / "manifest.json").write_bytes(written.replace(b"\n ", b"\n  "))
    with pytest.raises(ArchiveDamaged):
        load(closed)


@pytest.mark.parametrize(
    "change", [lambda m: {"run": "x"}, lambda m: {"first": 2}, lambda m: {"segments": ()}]
)
def test_any_change_of_a_manifest_shows(
    closed: Path, change: Callable[[Manifest], dict[str, object]]
) -> None:
    manifest = load(closed)
    forged = msgspec.structs.replace(manifest, **change(manifest))
    checksum = (closed / "manifest.json").read_bytes().split(b'"')[3]
    content = render(forged)
    (closed / "manifest.json").write_bytes(content.replace(content.split(b'"')[3], checksum))
    with pytest.raises(ArchiveDamaged):
        load(closed)
