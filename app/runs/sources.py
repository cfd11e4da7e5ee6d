"""Where a question about a run is answered from: a run of this home, or the folder of an archive."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.runs import RUN_NAME, RunHandle, list_runs, open_run
from hindcast.app.system.home import home_folder
from hindcast.core.settings.schema import Settings
from hindcast.events.archive.errors import ArchiveMissing
from hindcast.events.archive.manifest import is_archive
from hindcast.events.log.port import EventLog
from hindcast.storage.blobs.store import BlobStore


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


def open_source(name: str | None = None) -> RunHandle | ArchiveSource:
    """A run by its name, or an archive by its folder; None: the run started last.

    Where both are meant by the same word it is the run; `./run-1` is always a folder.

    Raises:
        NoSuchRun: with the names there are.
        ArchiveMissing: a path that leads to no archive.

    """
    if name is None or name in list_runs(home_folder()):
        return open_run(name)
    folder = Path(name).expanduser()
    if not is_archive(folder):
        if RUN_NAME.fullmatch(name) and not folder.is_dir():
            return open_run(name)
        raise ArchiveMissing(
            f"{name!r} is neither a run's name nor the folder of an archive (it holds no manifest.json). Runs: hindcast run "
            "list. To make an archive of one: hindcast archive RUN DIR"
        )
    return ArchiveSource(folder)
