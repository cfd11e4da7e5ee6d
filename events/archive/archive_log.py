"""`ArchiveLog`: a read-only `EventLog` on an archive, without a broker. It grows by what the archiver writes.

Waits: `POLL_S` between checks for growth. Damaged parts raise an error with segment, position and remedy; nothing is skipped.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from hashlib import sha256
from pathlib import Path

from hindcast.core.errors import ForeignLog
from hindcast.events.archive.errors import ArchiveReadOnly
from hindcast.events.archive.manifest import Manifest
from hindcast.events.archive.reader import ArchiveReader
from hindcast.events.envelope import Record, Stored
from hindcast.events.log.port import Expectation, LogIdentity
from hindcast.events.subjects import matches, of_run

POLL_S = 0.5


class ArchiveLog:
    """An `EventLog` in an archive's folder. Several readers may share one."""

    def __init__(self, folder: Path) -> None:
        """Open it. Raises ArchiveMissing, ArchiveDamaged or ArchiveUnknown if there is no sound manifest."""
        self._reader = ArchiveReader(folder)
        self.folder = folder
        self.run, self.lineage = self.manifest.run, self.manifest.lineage

    @property
    def manifest(self) -> Manifest:
        """Manifest as last read."""
        return self._reader.manifest

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        """Refuse: an archive is read-only.

        Raises:
            ArchiveReadOnly: always.

        """
        raise ArchiveReadOnly(
            f"the archive in {self.folder} cannot be appended to. To go on with run {self.run}, bring it into a broker "
            f"first: hindcast import {self.folder}"
        )

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        """See `EventLog.read`. Raises BeyondArchive for positions before the archive's beginning."""
        events: list[Stored] = []
        refreshed = False
        while len(events) < limit:
            batch = await asyncio.to_thread(self._reader.following, after + len(events))
            if not batch:
                if refreshed:
                    break
                refreshed = True
                await asyncio.to_thread(self._reader.refresh)
            events += batch[: limit - len(events)]
        return events

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        """See `EventLog.tail`; new events are seen within `POLL_S`. Raises BeyondArchive like `read`."""
        last = await asyncio.to_thread(self._reader.refresh)
        if after > last:
            raise ForeignLog(
                f"the archive of run {self.run} in {self.folder} ends at position {last}, reading was asked after {after}: "
                "it is an older or another archive than the log read before."
            )
        position = after
        while True:
            batch = await asyncio.to_thread(self._reader.following, position)
            if batch:
                position = batch[-1].position
                yield batch
            elif await asyncio.to_thread(self._reader.refresh) == position:
                await asyncio.sleep(POLL_S)

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        """See `EventLog.last_under`. Reads backwards, and only segments that may hold such an event."""
        if until is None or until > self._reader.last:
            await asyncio.to_thread(self._reader.refresh)
        return await asyncio.to_thread(self._last_under, subject, until)

    def _last_under(self, subject: str, until: int | None) -> Stored | None:
        """Search backwards; events of a fork's prefix have their own run's name in the subject."""
        lineage = list(self.lineage)
        pattern = subject
        for stored in self._reader.backwards(subject, until=until):
            while lineage and stored.position <= lineage[-1].until:
                pattern = of_run(subject, lineage.pop().run)
            if matches(pattern, stored.subject):
                return stored
        return None

    async def identity(self) -> LogIdentity:
        """See `EventLog.identity`."""
        last = await asyncio.to_thread(self._reader.refresh)
        first = self._reader.first
        if last < first:
            return LogIdentity(run=self.run, first_digest=b"", first=0, last=last)
        beginning = await asyncio.to_thread(self._reader.following, first - 1)
        digest = sha256(beginning[0].data).digest()
        return LogIdentity(run=self.run, first_digest=digest, first=first, last=last)
