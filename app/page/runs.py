"""What a visitor asks about: the runs of a home that the page has open, one request, and the positions that visitors watch."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import stat_result
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from sqlalchemy import Connection
from starlette.datastructures import ImmutableMultiDict

from hindcast.app.page.index_builds import IndexBuild, IndexBuilds
from hindcast.app.runs.runs import FORK_FILE, SETTINGS_FILE, RunHandle, list_runs, open_run, run_folder
from hindcast.app.runs.sources import Source
from hindcast.core.errors import SettingsError
from hindcast.events.log.places import parse_place
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.query_parts import position_of, position_of_place

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_SPAN = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
_LARGEST = 2**62
"""Largest number accepted: it fits every database's columns and leaves room for sums; times in ns are less than half."""
LIVE_POLL_S = 0.5
"""Seconds between two reads of a run's position."""


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
        self.indexing = IndexBuilds()
        self._open: dict[str, tuple[_Stamp, OpenRun]] = {}
        self._lock = Lock()

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


def whole_number(text: str) -> int | None:
    """Parse a whole number; None if it is none, or larger than any recorded one."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and abs(number) <= _LARGEST else None


def parse_number(text: str, *, name: str) -> int | None:
    """A whole number of a parameter; None if it is empty. Raises SettingsError for anything else, and for one that no column holds."""
    if not text:
        return None
    number = whole_number(text)
    if number is None:
        raise SettingsError(f"{name}={text[:40]!r} in the address must be a whole number")
    return number


def parse_span(text: str, *, name: str) -> tuple[int, int] | None:
    """First and last number of a parameter: `7`, or `3-7` from a pooled point of a curve; None if it is empty.

    Raises SettingsError for anything else, and for a number that no column holds.
    """
    if not text:
        return None
    several = _SPAN.fullmatch(text)
    first, last = (whole_number(one) for one in (several.groups() if several else (text, text)))
    if first is None or last is None:
        raise SettingsError(f"{name}={text[:40]!r} in the address must be a whole number, or two such as 3-7")
    return first, last


@dataclass(frozen=True)
class PageQuery:
    """Input of a page's answer."""

    runs: OpenRuns | None
    """All runs of the home; None: the run is an archive, and only views of `page.frozen` answer."""
    run: Source
    connection: Connection
    """One consistent view of the run's read model."""
    position: int
    """Position as of which the page answers."""
    parts: Mapping[str, str]
    """Parameters in the path, by name: `episode`."""
    query: ImmutableMultiDict[str, str]
    """Query parameters; one may occur several times."""

    @property
    def home_runs(self) -> OpenRuns:
        """All runs of the home, for views that are not answered from an archive."""
        assert self.runs is not None, "this view is only shown of a run of a home"
        return self.runs

    @property
    def handle(self) -> RunHandle:
        """The run, for views that are not answered from an archive."""
        assert isinstance(self.run, RunHandle), "this view is only shown of a run of a home"
        return self.run

    def word(self, name: str) -> str | None:
        """A query parameter; None if it is absent or empty."""
        return self.query.get(name) or None

    def words(self, name: str) -> list[str]:
        """All values of a query parameter, without empty ones."""
        return [word for word in self.query.getlist(name) if word]

    def number(self, name: str) -> int | None:
        """A whole number in the query. Raises SettingsError for anything else, and for one that no column holds."""
        return parse_number(self.query.get(name, ""), name=name)

    def span(self, name: str) -> tuple[int, int] | None:
        """First and last number of a query parameter, see `parse_span`."""
        return parse_span(self.query.get(name, ""), name=name)


class LivePositions:
    """The newest position of each run."""

    def __init__(self, indexing: IndexBuilds) -> None:
        self._indexing = indexing
        self._looks: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def shown(self, run: OpenRun) -> str:
        """The mark of the run's current page, at most `LIVE_POLL_S` old."""
        name = run.handle.name
        async with self._locks[name]:
            looked, shown = self._looks.get(name, (float("-inf"), ""))
            if time.monotonic() - looked >= LIVE_POLL_S:
                shown = await asyncio.to_thread(
                    lambda: mark(
                        run.model.position(),
                        going_on=run.handle.is_running(),
                        indexing=self._indexing.state(name),
                    )
                )
                self._looks[name] = (time.monotonic(), shown)
            return shown


def mark(position: int, *, going_on: bool, indexing: IndexBuild) -> str:
    """Identifies a page's content by the read model's position, whether the run is running, and how far an index of its pages
    is built. Another mark means a new page.
    """
    said = f"{position}" if going_on else f"{position} at rest"
    return f"{said}, indexing at {indexing.position}" if indexing.running else said
