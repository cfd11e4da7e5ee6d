"""Whatever is archived, in whatever batches, and whenever the power fails: the archive ends up as the log."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hindcast.events.archive.check import check_archive
from hindcast.events.archive.manifest import is_archive
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.disk import Disk
from hindcast.events.envelope import Stored
from stories.archive_story import DyingDisk, PowerCut, all_of, open_writer, plain, small_log

EVENTS = asyncio.run(small_log(60)).events

batches = st.lists(st.integers(1, 12), min_size=1, max_size=8)
cuts = st.lists(st.tuples(st.integers(0, 25), st.floats(0, 1)), max_size=6)


class Archiving:
    """An archiver and what it was told is durable, over any number of power cuts."""

    def __init__(self, folder: Path, segment_bytes: int, sizes: list[int]) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.sizes = sizes
        self.acknowledged = 0

    def go_on(self, disk: Disk | None) -> None:
        """Archive all there is; ends with PowerCut where the disk says so."""
        writer = open_writer(self.folder, segment_bytes=self.segment_bytes, disk=disk)
        try:
            self._write(writer)
        finally:
            writer.close()  # what the end of a process does

    def _write(self, writer: ArchiveWriter) -> None:
        assert writer.last >= self.acknowledged, "what was acknowledged is there after any crash"
        turn = 0
        while writer.last < len(EVENTS):
            size = self.sizes[turn % len(self.sizes)]
            writer.append(EVENTS[writer.last : writer.last + size])
            self.acknowledged = writer.last
            if turn % 3 == 2:
                writer.note()
            turn += 1

    def held(self) -> list[Stored]:
        """What a reader finds now."""
        return all_of(self.folder) if is_archive(self.folder) else []


@given(sizes=batches, power=cuts, segment_bytes=st.integers(200, 4000))
@settings(max_examples=150)
def test_the_archive_is_the_log_after_any_crashes(
    sizes: list[int], power: list[tuple[int, float]], segment_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        archiving = Archiving(Path(place) / "archive", segment_bytes, sizes)
        for steps, part in power:
            disk = DyingDisk(steps, part)
            try:
                archiving.go_on(disk)
                disk.close()
            except PowerCut:
                held = archiving.held()
                assert plain(held) == plain(EVENTS[: len(held)]), "never anything but a beginning of the log"
                assert len(held) >= archiving.acknowledged, "nothing that was acknowledged is missing"
        archiving.go_on(None)
        assert plain(archiving.held()) == plain(EVENTS)
        report = check_archive(archiving.folder)
        assert (report.defects, report.events, report.unfinished_bytes) == ((), len(EVENTS), 0)
