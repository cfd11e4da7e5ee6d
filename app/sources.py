"""Where a question about a run is answered from: a run of this home, or whatever else holds its log and its blobs."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from app.runs import open_run
from core.settings import Settings
from events.log import EventLog
from storage.blobs import BlobStore


class Source(Protocol):
    """A run that can be read. Nothing of it is opened before it is asked for."""

    @property
    def name(self) -> str:
        """The run."""
        ...

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        ...

    @property
    def settings(self) -> Settings:
        """As the run was started with."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """What its events name by digest."""
        ...

    @property
    def code_rev(self) -> str:
        """Which code this is that reads it now."""
        ...

    def connect_log(self) -> AbstractAsyncContextManager[EventLog]:
        """Its log, to be read."""
        ...


def open_source(name: str | None = None) -> Source:
    """A run by name; None: the one started last.

    Raises:
        NoSuchRun: with the names there are.

    """
    return open_run(name)
