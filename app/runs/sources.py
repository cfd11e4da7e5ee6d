"""Sources that commands read a run from: a run of this home, or the folder of an archive."""

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
    """A run that can be read. Its parts are opened on access."""

    @property
    def name(self) -> str:
        """Name of the run."""
        ...

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        ...

    @property
    def settings(self) -> Settings:
        """Settings that the run was started with."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """Blobs that its events name by digest."""
        ...

    @property
    def code_rev(self) -> str:
        """Revision of the code that reads the run now."""
        ...

    def connect_log(self) -> AbstractAsyncContextManager[EventLog]:
        """Open its log for reading."""
        ...


def open_source(name: str | None = None) -> RunHandle | ArchiveSource:
    """Open a run by its name, or an archive by its folder; None: the run started last.

    A word that is both is the run; `./run-1` is always a folder.

    Raises:
        NoSuchRun: lists the existing names.
        ArchiveMissing: the path is no archive.

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
