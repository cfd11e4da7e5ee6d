"""Archives for tests: small logs of real events, a disk that is quick, one that dies, a log that is read from its archive."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hindcast.core.settings.schema import LogSettings
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.continued_log import ContinuedLog
from hindcast.events.archive.reader import ArchiveReader
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.catalogue import WaitExceeded
from hindcast.events.disk import Disk
from hindcast.events.envelope import Record, Stored
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import Expectation, LogIdentity
from hindcast.events.log.publisher import Publisher

RUN = "r_archive"
QUICK = LogSettings(linger_ms=0)


class QuickDisk(Disk):
    """Nothing is synced: for tests that open thousands of archives and pull no plug."""

    def sync(self, file: int) -> None:
        """Not done."""

    def sync_folder(self, folder: Path) -> None:
        """Not done."""


class PowerCut(BaseException):
    """The machine is off."""


class DyingDisk(QuickDisk):
    """Loses power at the n-th thing that is done to it.

    What was not synced by then is on the disk as far as `part` says: of a file's new end that much, a rename if it is
    more than half.
    """

    def __init__(self, steps: int, part: float) -> None:
        self._left = steps
        self._part = part
        self._files: dict[int, tuple[int, int]] = {}
        """Inode -> a descriptor of our own, and how many bytes are safe."""
        self._undo: Callable[[], object] = bool

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            for file, safe in self._files.values():
                size = os.fstat(file).st_size
                os.ftruncate(file, safe + int(max(0, size - safe) * self._part))
            if self._part <= 0.5:
                self._undo()
            self.close()
            raise PowerCut

    def close(self) -> None:
        """Forget the files."""
        for file, _ in self._files.values():
            os.close(file)
        self._files.clear()

    def write(self, file: int, content: bytes) -> None:
        """Not safe before it is synced."""
        found = os.fstat(file)
        if found.st_ino not in self._files:
            self._files[found.st_ino] = (os.dup(file), found.st_size)
        super().write(file, content)
        self._step()

    def sync(self, file: int) -> None:
        """Perhaps too late."""
        self._step()
        found = os.fstat(file)
        if found.st_ino in self._files:
            self._files[found.st_ino] = (self._files[found.st_ino][0], found.st_size)

    def rename(self, temporary: Path, place: Path) -> None:
        """Not safe before its folder is synced."""
        before = place.read_bytes() if place.exists() else None
        super().rename(temporary, place)
        self._undo = place.unlink if before is None else partial(place.write_bytes, before)
        self._step()

    def sync_folder(self, folder: Path) -> None:
        """Perhaps too late."""
        self._step()
        self._undo = bool


async def small_log(count: int, *, run: str = RUN) -> MemoryLog:
    """A log of a few hundred bytes per event, all of one producer."""
    log = MemoryLog(run)
    async with Publisher(log, producer="actor.1", code_rev="test", settings=QUICK) as publisher:
        for number in range(count):
            fact = WaitExceeded(setting="some.setting", limit_s=float(number), waited_for="x" * (number % 5))
            await publisher.publish(fact, entity=f"e{number}", ordinal=number)
    return log


def open_writer(
    folder: Path, *, run: str = RUN, segment_bytes: int = 1 << 20, first: int = 1, disk: Disk | None = None
) -> ArchiveWriter:
    """A writer on a quick disk."""
    return ArchiveWriter.open(
        folder, run=run, first=first, segment_bytes=segment_bytes, disk=disk or QuickDisk()
    )


def write_archive(
    folder: Path,
    events: Sequence[Stored],
    *,
    batch: int = 3,
    segment_bytes: int = 1 << 20,
    noted: bool = True,
) -> Path:
    """An archive of these events, in batches."""
    writer = open_writer(folder, segment_bytes=segment_bytes, first=events[0].position)
    for start in range(0, len(events), batch):
        writer.append(events[start : start + batch])
    if noted:
        writer.note()
    writer.close()
    return folder


def all_of(folder: Path) -> list[Stored]:
    """Every event that an archive gives."""
    reader = ArchiveReader(folder)
    found: list[Stored] = []
    while batch := reader.following(reader.first - 1 + len(found)):
        found += batch
    return found


def plain(events: Sequence[Stored]) -> list[tuple[int, str, str, bytes]]:
    """What an archive must keep of events."""
    return [(stored.position, stored.subject, stored.id, stored.data) for stored in events]


def copy(folder: Path, place: Path) -> Path:
    """Another archive like it, to be damaged."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    return place


class ArchivedLog(MemoryLog):
    """A log that is archived as it grows, and read from its archive alone."""

    def __init__(self, run: str, folder: Path, *, max_bytes: int | None = None) -> None:
        super().__init__(run, max_bytes=max_bytes)
        self._writer = open_writer(folder, run=run, segment_bytes=20_000)
        self._archive = ArchiveLog(folder)

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        positions = await super().append(batch, expect=expect)
        self._writer.append(self.events[self._writer.last :])
        return positions

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        return await self._archive.read(after=after, limit=limit)

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        async for batch in self._archive.tail(after=after):
            yield batch

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        return await self._archive.last_under(subject, until=until)

    async def identity(self) -> LogIdentity:
        return await self._archive.identity()


class MovedLog:
    """A stream whose every event is archived, and forgotten by the broker but for the last few, as soon as it is there."""

    KEPT = 2

    def __init__(self, stream: JetStreamLog, archiver: JetStreamLog, folder: Path) -> None:
        self._archiver = archiver
        self._writer = open_writer(folder, run=stream.run, segment_bytes=20_000)
        self._log = ContinuedLog(folder, stream, first=1)
        self._moving = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        positions = await self._log.append(batch, expect=expect)
        async with self._moving:
            await self._move()
        return positions

    async def _move(self) -> None:
        while fresh := await self._archiver.read(after=self._writer.last, limit=500):
            self._writer.append(fresh)
        until = self._writer.last - self.KEPT
        if until > 0:
            await self._archiver.purge(until=until)
