"""An index of the texts of a run's pages, for searches by words. It is built when someone asks for it.

    log ──> steps and ends with a page ──> blob ──> words of the page ──> SQLite FTS5, a file in the run's folder
    search ──> pages with the words ──> episodes that showed them, as of a position

Invariant 1, log is the truth: the index follows from the log and the blobs, and can be deleted at any time. It is no part of
the read model, so a rebuild neither makes nor compares it. Equal pages are stored once, and only their words. A page whose
blob was released before it was indexed is counted as missing; words of pages that are released later stay until the index
is deleted.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from hindcast.core.domain.observation import Page
from hindcast.core.errors import BlobCorrupt, BlobMissing, HindcastError
from hindcast.core.structs import decode_msgpack
from hindcast.events.catalogue import EpisodeEnded, StepTaken
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.episode_queries import Mention, mentioning
from hindcast.storage.readmodel.query_parts import position_of

VERSION = 1
"""Version of the tables and of the words taken from a page; an index of another version is built anew."""
BATCH_EVENTS = 500
"""Events between two commits: a stop loses no more work than that."""
BUSY_S = 30.0
"""Longest wait for another process that writes the same index."""
TABLES = """
CREATE TABLE standing (version INTEGER, first_digest TEXT, position INTEGER, missing INTEGER);
CREATE TABLE pages (page INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE);
CREATE TABLE seen (position INTEGER PRIMARY KEY, page INTEGER NOT NULL, episode TEXT NOT NULL, step INTEGER);
CREATE INDEX seen_page ON seen (page, position);
CREATE VIRTUAL TABLE words USING fts5(text, content='', columnsize=0, tokenize='unicode61');
"""


class PageIndexDamaged(HindcastError):
    """The file is no index of pages, or is damaged."""


class PageIndexStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What an index holds."""

    position: int
    """Position up to which the log is indexed."""
    pages: int
    """Different pages."""
    shown: int
    """Times that a step or an end of an episode showed one of them."""
    missing: int
    """Times that the page's blob was missing or damaged."""
    size_bytes: int


class PageHit(NamedTuple):
    """The first page of an episode that has the words."""

    position: int
    """Position of the step, or of the episode's end."""
    step: int | None
    """Number of the step; None: the page that the episode ended on."""


class _Showing(NamedTuple):
    """A page that an event names."""

    position: int
    page: BlobRef
    episode: str
    step: int | None


class PageIndex:
    """The index of one run. Blocking, except `extend`."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of the run's own files."""
        self.file = folder / "page-index.sqlite"

    def status(self) -> PageIndexStatus | None:
        """What the index holds; None: there is none.

        Raises:
            PageIndexDamaged.
        """
        if not self.file.exists():
            return None
        with self._open() as database:
            state = _standing(database)
            if state is None:
                return None
            pages, showings = (
                database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("pages", "seen")
            )
        size = sum(path.stat().st_size for path in self._files() if path.exists())
        return PageIndexStatus(
            position=state[0], pages=pages, shown=showings, missing=state[1], size_bytes=size
        )

    async def extend(self, log: EventLog, blobs: BlobStore) -> AsyncGenerator[int, None]:
        """Index the log up to its present end; yields each position reached. Another log's index is built anew.

        Raises:
            PageIndexDamaged, CorruptEvent, ForeignLog.
        """
        identity = await log.identity()
        position = await asyncio.to_thread(self._begin, identity.first_digest.hex())
        batch: list[_Showing] = []
        reached = position
        async with aclosing(read(log, after=position, until=identity.last, strict=False)) as recordeds:
            async for recorded in recordeds:
                batch += _showings(recorded)
                reached = recorded.position
                if reached - position >= BATCH_EVENTS:
                    await asyncio.to_thread(self._add, batch, blobs, reached)
                    batch, position = [], reached
                    yield reached
        if reached < identity.last or batch or reached > position:
            await asyncio.to_thread(self._add, batch, blobs, identity.last)
        yield identity.last

    def search(self, text: str, *, as_of: int) -> dict[str, PageHit]:
        """The episodes that showed a page with these words in this order by a position.

        The last word may be the beginning of a longer one. Case and accents do not matter. Nothing is found without an index, or without a word in the text.
        """
        words = "".join(letter if letter.isalnum() else " " for letter in text).split()
        if not words or not self.file.exists():
            return {}
        with self._open() as database:
            if _standing(database) is None:
                return {}
            rows = database.execute(
                "SELECT episode, min(position), step FROM seen WHERE page IN (SELECT rowid FROM words WHERE words MATCH ?) "
                "AND position <= ? GROUP BY episode",
                (f'"{" ".join(words)}" *', as_of),
            ).fetchall()
        return {episode: PageHit(position, step) for episode, position, step in rows}

    def delete(self) -> bool:
        """Delete it; returns whether there was one."""
        existed = self.file.exists()
        for path in self._files():
            path.unlink(missing_ok=True)
        return existed

    def _files(self) -> tuple[Path, ...]:
        return tuple(Path(f"{self.file}{ending}") for ending in ("", "-wal", "-shm"))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.file, timeout=BUSY_S, isolation_level=None)
        try:
            yield database
        except sqlite3.DatabaseError as error:
            raise PageIndexDamaged(
                f"the index of pages in {self.file} cannot be used: {error}. It can be built again: delete it with "
                "hindcast episode index --delete"
            ) from error
        finally:
            database.close()

    def _begin(self, first_digest: str) -> int:
        """Create the tables unless they are there; returns the position that they reach."""
        with self._open() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("BEGIN IMMEDIATE")
            state = _standing(database)
            if state is None or state[2] != first_digest:
                names = database.execute(
                    "SELECT name FROM sqlite_master WHERE name IN ('standing', 'pages', 'seen', 'words')"
                ).fetchall()
                for (name,) in names:
                    database.execute(f"DROP TABLE {name}")
                for statement in TABLES.strip().split(";\n"):
                    database.execute(statement.rstrip(";"))
                database.execute("INSERT INTO standing VALUES (?, ?, 0, 0)", (VERSION, first_digest))
            database.execute("COMMIT")
            return 0 if state is None or state[2] != first_digest else state[0]

    def _add(self, batch: list[_Showing], blobs: BlobStore, reached: int) -> None:
        """Index some pages and move the position, in one transaction; what another process has indexed by then is left out."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            state = _standing(database)
            if state is None:
                raise PageIndexDamaged(
                    f"the index of pages in {self.file} was deleted while it was built. Nothing is lost; build it again with "
                    "hindcast episode index"
                )
            missing = sum(
                not _index(database, showing, blobs) for showing in batch if showing.position > state[0]
            )
            if reached > state[0]:
                database.execute(
                    "UPDATE standing SET position = ?, missing = missing + ?", (reached, missing)
                )
            database.execute("COMMIT")


def _standing(database: sqlite3.Connection) -> tuple[int, int, str] | None:
    """Position, missing pages and the log's first digest; None: there is no index of this version."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'standing'").fetchone():
        return None
    version, first_digest, position, missing = database.execute(
        "SELECT version, first_digest, position, missing FROM standing"
    ).fetchone()
    return (position, missing, first_digest) if version == VERSION else None


def _showings(recorded: Recorded) -> list[_Showing]:
    match recorded.fact:
        case StepTaken(observation=BlobRef() as page, episode=episode, index=index):
            return [_Showing(recorded.position, page, episode, index)]
        case EpisodeEnded(final_observation=BlobRef() as page, episode=episode):
            return [_Showing(recorded.position, page, episode, None)]
        case _:
            return []


def _index(database: sqlite3.Connection, showing: _Showing, blobs: BlobStore) -> bool:
    """Index one page; returns whether it could be read."""
    row = database.execute("SELECT page FROM pages WHERE sha256 = ?", (showing.page.sha256,)).fetchone()
    if row is None:
        try:
            page = decode_msgpack(blobs.get(showing.page), Page)
        except (BlobMissing, BlobCorrupt, msgspec.MsgspecError):
            return False
        number = database.execute("INSERT INTO pages (sha256) VALUES (?)", (showing.page.sha256,)).lastrowid
        database.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, words_of(page)))
    else:
        (number,) = row
    database.execute(
        "INSERT INTO seen VALUES (?, ?, ?, ?)", (showing.position, number, showing.episode, showing.step)
    )
    return True


def words_of(page: Page) -> str:
    """What a page says, a line for each of its parts: texts, values and choices, without the numbers of elements."""
    lines = [page.title]
    for node in page.nodes:
        texts = (node.text, node.value or "", *node.options, *node.attributes.values())
        lines.append(" ".join(text for text in texts if text))
    return "\n".join(line for line in lines if line)


def episodes_with_text(
    connection: Connection, index: PageIndex, text: str, *, as_of: int | None = None
) -> dict[str, Mention]:
    """Episodes that mention a text (`mentioning`), and, where there is an index, those whose pages show its words."""
    position = position_of(connection, as_of)
    mentions = mentioning(connection, text, as_of=position)
    for episode, hit in index.search(text, as_of=position).items():
        mentions.setdefault(episode, Mention(where="page", step=hit.step))
    return mentions
