"""The runs of a home as the page has them open: one read model each, asked one consistent view at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from sqlalchemy import Connection

from app.runs import RunHandle, list_runs, open_run
from events.places import parse_place
from storage.readmodel.asking import position_of
from storage.readmodel.database import ReadModel
from storage.readmodel.places import position_of_place


class OpenRun(NamedTuple):
    """A run and its read model."""

    handle: RunHandle
    model: ReadModel


class AsOf(NamedTuple):
    """The place that is asked about."""

    position: int
    reached: int
    """How far the read model is."""
    chosen: bool
    """Whether somebody named the place; else it moves on with the run."""


class OpenRuns:
    """Opened when somebody asks for them, closed together."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._open: dict[str, OpenRun] = {}
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
            if name not in self._open:
                handle = open_run(name, home=self.home)
                self._open[name] = OpenRun(handle, handle.read_model())
            return self._open[name]

    @contextmanager
    def asking(self, name: str, as_of: str | None) -> Iterator[tuple[OpenRun, Connection, AsOf]]:
        """One consistent view of a run's read model, and the position that `as_of` means; None: where it stands.

        Raises:
            NoSuchRun, NoSuchPlace, NotInReadModel, ReadModelUnavailable.

        """
        found = self.open(name)
        with found.model.reading() as connection:
            reached = position_of(connection, None)
            position = position_of_place(connection, parse_place(as_of)) if as_of else reached
            yield found, connection, AsOf(position, reached, bool(as_of))

    def close(self) -> None:
        """Let go of every database."""
        with self._lock:
            for one in self._open.values():
                one.model.close()
            self._open.clear()
