"""A run in an archive as a `Source` for commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path

from hindcast.app.revision import code_revision
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import Settings
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.manifest import load
from hindcast.events.archive.reader import ArchiveReader
from hindcast.events.catalogue import RunStarted
from hindcast.events.log.port import EventLog
from hindcast.events.log.run_identity import before_own, beginning_in
from hindcast.storage.archive.archiver import archive_blobs
from hindcast.storage.blobs.store import BlobStore


class ArchiveSource:
    """A run in an archive, read without broker or home. Errors name the damaged part of the archive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def name(self) -> str:
        """Name of the run."""
        return load(self.folder).run

    @cached_property
    def started(self) -> RunStarted:
        """The fact of its first event."""
        reader = ArchiveReader(self.folder)
        before = max(before_own(reader.manifest.lineage), reader.first - 1)
        events = reader.following(before)
        return beginning_in(events[0] if events else None, run=self.name)

    @cached_property
    def settings(self) -> Settings:
        """Settings that the run was started with."""
        return decode_settings(self.started.settings)

    @cached_property
    def blobs(self) -> BlobStore:
        """The archived blobs."""
        return archive_blobs(self.folder)

    @property
    def keeps_pages(self) -> bool:
        """Whether the archive contains snapshots of pages."""
        return load(self.folder).blobs.pages

    @property
    def code_rev(self) -> str:
        """Revision of the code that reads the archive now."""
        return code_revision()

    @asynccontextmanager
    async def connect_log(self) -> AsyncIterator[EventLog]:
        """Open its log for reading."""
        yield ArchiveLog(self.folder)
