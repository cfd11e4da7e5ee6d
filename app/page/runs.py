"""The runs of a home that the page has open: one read model each, queried in consistent views."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import stat_result
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from sqlalchemy import Connection

from hindcast.app.runs.runs import FORK_FILE, SETTINGS_FILE, RunHandle, list_runs, open_run, run_folder
from hindcast.events.log.places import parse_place
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.query_parts import position_of, position_of_place


class OpenRun(NamedTuple):
    """A run and its read model."""

    handle: RunHandle
    model: ReadModel


class AsOf(NamedTuple):
    """The position that a request asks about."""

    position: int
    reached: int
    """Position of the read model."""
    chosen: bool
    """Whether the request named a place; else the page follows the run."""


_Stamp = tuple[tuple[int, int] | None, tuple[int, int] | None, int | None]
"""Identity of the files that a run was opened with: settings, fork, database."""


class OpenRuns:
    """Opens runs on demand, and again when their files change; closes them together."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._open: dict[str, tuple[_Stamp, OpenRun]] = {}
        self._lock = Lock()

    def newest(self) -> str:
        """The run started last. Raises NoSuchRun."""
        return open_run(home=self.home).name

    def names(self) -> list[str]:
        """All of them, oldest first."""
        return list_runs(self.home)

    def open(self, name: str) -> OpenRun:
        """A run by its name. Raises NoSuchRun."""
        with self._lock:
            stamp, known = self._open.get(name, (None, None))
            if known is not None:
                if stamp == self._stamp(known):
                    return known
                del self._open[name]
                known.model.close()
            handle = open_run(name, home=self.home)
            opened = OpenRun(handle, handle.read_model())
            self._open[name] = (self._stamp(opened), opened)
            return opened

    def _stamp(self, run: OpenRun) -> _Stamp:
        """Identify the files: a deleted and rebuilt database is a new file, and an open connection would show the old one."""
        folder = run_folder(self.home, run.handle.name)
        settings, fork = (_status(folder / file) for file in (SETTINGS_FILE, FORK_FILE))
        database = None if run.model.file is None else _status(run.model.file)
        return (
            settings and (settings.st_ino, settings.st_mtime_ns),
            fork and (fork.st_ino, fork.st_mtime_ns),
            database and database.st_ino,
        )

    @contextmanager
    def asking(self, name: str, as_of: str | None) -> Iterator[tuple[OpenRun, Connection, AsOf]]:
        """One consistent view of a run's read model, and the position that `as_of` means; None: the read model's position.

        Raises:
            NoSuchRun, NoSuchPlace, NotInReadModel, ReadModelUnavailable.

        """
        found = self.open(name)
        with found.model.reading() as connection:
            reached = position_of(connection, None)
            position = position_of_place(connection, parse_place(as_of)) if as_of else reached
            yield found, connection, AsOf(position, reached, bool(as_of))

    def close(self) -> None:
        """Close every database."""
        with self._lock:
            for _, one in self._open.values():
                one.model.close()
            self._open.clear()


def _status(file: Path) -> stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None
