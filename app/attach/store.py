"""Store of attached consumers: their position, in one transaction with their effect, in SQLite or PostgreSQL.

By default each consumer has a SQLite file under the run's folder; `--store` names a database that several machines can use.
A process moves the position only from the value that it knows, so a second process of the same name is detected at once.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from hindcast.core.errors import HindcastError
from hindcast.events.disk import PRIVATE_FILE, PRIVATE_FOLDER
from hindcast.events.log.reader import Bookmark
from hindcast.storage.readmodel.address import open_engine, parse, without_secrets

ERROR_CHARACTERS = 2000

metadata = MetaData()
consumers = Table(
    "hindcast_consumers",
    metadata,
    Column("run", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("target", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("first_digest", LargeBinary, nullable=False),
    Column("last_position", BigInteger, nullable=False),
    Column("last_digest", LargeBinary, nullable=False),
    Column("state", LargeBinary),
)
"""One row per consumer and run: its position, its log, and the state of a fold."""
dead_letters = Table(
    "hindcast_dead_letters",
    metadata,
    Column("run", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Text, nullable=False),
    Column("held", Text, nullable=False),
    Column("error", Text, nullable=False),
)
"""Events that a consumer skipped; `held`: entity whose later events are held back, too."""


class StoreUnavailable(HindcastError):
    """The database of an attached consumer's position does not answer."""


class ConsumerMoved(HindcastError):
    """Another process moved this consumer's position."""


class ConsumerPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a consumer: a row of `hindcast_consumers`."""

    run: str
    name: str
    target: str
    host: str
    position: int
    first_digest: bytes
    last_position: int
    """Position of the last event applied; less than `position` if events of unknown types followed."""
    last_digest: bytes
    state: bytes | None

    @property
    def bookmark(self) -> Bookmark | None:
        """Identify the log that the consumer has read, so that another log of the same name is refused."""
        if not self.last_position:
            return None
        return Bookmark(position=self.last_position, digest=self.last_digest, first_digest=self.first_digest)


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a consumer skipped."""

    position: int
    type: str
    held: str
    error: str


class ConsumerStore:
    """The database of attached consumers. Blocking."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError: the address is no supported database, or contains a password."""
        self._url = parse(url, source="--store")
        self._engine = open_engine(self._url, source="--store")
        self.shown_url = without_secrets(self._url)

    @property
    def file(self) -> Path | None:
        """The SQLite file, or None for another database."""
        sqlite = self._url.get_backend_name() == "sqlite"
        return Path(self._url.database) if sqlite and self._url.database else None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: the block's writes are all committed at its end, or none."""
        try:
            begun = self._engine.begin()
            connection = begun.__enter__()
        except DBAPIError as error:
            raise self._unavailable(error) from error
        try:
            yield connection
        except BaseException as error:
            begun.__exit__(type(error), error, error.__traceback__)
            raise
        try:
            begun.__exit__(None, None, None)
        except DBAPIError as error:
            raise self._unavailable(error) from error

    @contextmanager
    def asking(self) -> Iterator[Connection]:
        """A transaction for Hindcast's own statements, in which every error is one of the database.

        Raises:
            StoreUnavailable: the database does not answer, is full, or is damaged.

        """
        try:
            with self.writing() as db:
                yield db
        except DBAPIError as error:
            raise self._unavailable(error) from error

    def prepare(self) -> None:
        """Create missing tables."""
        if self.file is not None:
            self.file.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self.file.touch(PRIVATE_FILE)
        with self.asking() as db:
            metadata.create_all(db)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def standings(self, run: str) -> list[ConsumerPosition]:
        """Positions of a run's consumers in this store; empty if none was ever attached."""
        if self.file is not None and not self.file.exists():
            return []
        with self.asking() as db:
            if not inspect(db).has_table(consumers.name):
                return []
            rows = db.execute(select(consumers).where(consumers.c.run == run).order_by(consumers.c.name))
            return [ConsumerPosition(**row) for row in rows.mappings()]

    def dead_letters(self, run: str, name: str, *, limit: int) -> tuple[int, list[DeadLetter]]:
        """Number of skipped events, and the newest of them."""
        mine = (dead_letters.c.run == run, dead_letters.c.name == name)
        columns = (dead_letters.c[field] for field in DeadLetter.__struct_fields__)
        with self.asking() as db:
            number = db.scalar(select(func.count()).where(*mine)) or 0
            rows = db.execute(
                select(*columns).where(*mine).order_by(dead_letters.c.position.desc()).limit(limit)
            )
            return number, [DeadLetter(**row) for row in rows.mappings()]

    def forget(self, run: str, name: str) -> None:
        """Delete a consumer's position, state and dead letters; its own tables stay."""
        with self.asking() as db:
            for table in (consumers, dead_letters):
                db.execute(delete(table).where(table.c.run == run, table.c.name == name))

    def _unavailable(self, error: DBAPIError) -> StoreUnavailable:
        return StoreUnavailable(f"the consumer's database {self.shown_url} does not answer: {error.orig}")


def begin_standing(db: Connection, standing: ConsumerPosition) -> None:
    """Insert the row of a new consumer."""
    db.execute(insert(consumers).values(**_values(standing)))


def find_standing(db: Connection, run: str, name: str) -> ConsumerPosition | None:
    """Position of a consumer; None for a new one."""
    row = (
        db.execute(select(consumers).where(consumers.c.run == run, consumers.c.name == name))
        .mappings()
        .one_or_none()
    )
    return None if row is None else ConsumerPosition(**row)


def first_digest_of(db: Connection, run: str) -> bytes:
    """Digest of the first event of the log that a run's consumers read: it tells logs of one name apart."""
    found: bytes = db.scalars(select(consumers.c.first_digest).where(consumers.c.run == run)).first() or b""
    return found


def move(db: Connection, before: ConsumerPosition, after: ConsumerPosition) -> None:
    """Move a consumer from one position to the next.

    Raises:
        ConsumerMoved: the stored position is not `before`.

    """
    moved = db.execute(
        update(consumers)
        .where(
            consumers.c.run == before.run,
            consumers.c.name == before.name,
            consumers.c.position == before.position,
        )
        .values(**_values(after))
    )
    if moved.rowcount != 1:
        raise ConsumerMoved(
            f"consumer {before.name} is not at position {before.position} any more: another process uses this "
            "name, or its position was deleted. Nothing was written; attach under another --name."
        )


def set_aside(db: Connection, run: str, name: str, letter: DeadLetter) -> None:
    """Record an event that was skipped."""
    values = {**msgspec.structs.asdict(letter), "error": letter.error[:ERROR_CHARACTERS]}
    db.execute(insert(dead_letters).values(run=run, name=name, **values))


def held_back(db: Connection, run: str, name: str) -> set[str]:
    """Entities held back by skipped events."""
    mine = (dead_letters.c.run == run, dead_letters.c.name == name)
    return set(db.scalars(select(dead_letters.c.held).where(*mine).distinct()))


def this_host() -> str:
    """Name of this machine in consumers' rows."""
    return socket.gethostname()


def _values(standing: ConsumerPosition) -> dict[str, Any]:
    return {name: getattr(standing, name) for name in ConsumerPosition.__struct_fields__}
