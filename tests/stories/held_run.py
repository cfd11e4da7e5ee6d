"""A run that is read from a log in memory: a `Source` for commands that ask about a run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hindcast.core.settings.schema import Settings
from hindcast.events.log.port import EventLog
from hindcast.storage.blobs.store import BlobStore


class HeldRun:
    """What is there of it is given; nothing else is opened."""

    code_rev = "test"

    def __init__(
        self, log: EventLog, *, blobs: BlobStore | None = None, settings: Settings | None = None
    ) -> None:
        self._log = log
        self.name = log.run
        self.blobs = blobs or BlobStore(Path("nowhere"))
        self.settings = settings or Settings()

    @asynccontextmanager
    async def connect_log(self) -> AsyncIterator[EventLog]:
        """The log itself."""
        yield self._log
