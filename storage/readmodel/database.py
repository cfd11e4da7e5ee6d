"""A read model's database: opened, made ready for the log it is to hold, written and read in transactions.

There are no migrations. A read model can be dropped and folded again from the log (invariant 1), so one that was written
by another schema version is dropped when it is prepared, and a notice says so.

SQLite keeps one file per run, in WAL mode, so that readers and the one writer do not wait for each other. Databases with
schemas get one per run.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError
from sqlalchemy.schema import CreateSchema, CreateTable, DropSchema

from core.errors import ForeignLog, HindcastError, SettingsError
from storage.readmodel.fold import CURSOR_NAME, Cursor, read_cursor
from storage.readmodel.tables import SCHEMA_VERSION, cursor, metadata

BUSY_TIMEOUT_MS = 10_000
"""How long another writer of the same SQLite file is waited for."""


class ReadModelUnavailable(HindcastError):
    """There is no read model to ask, or its database does not answer."""


class ReadModel:
    """The read model of one run in one database. Blocking: async code calls it through `asyncio.to_thread`."""

    def __init__(self, url: str, *, run: str, schema: str | None = None, scratch: bool = False) -> None:
        """`schema`: where the tables live in databases that have schemas; by default one named after the run.

        `scratch`: only to be filled, compared and dropped; has no indexes, and a power cut may damage it.

        Raises:
            SettingsError: the address is none, or its driver is not installed.

        """
        self.run = run
        self._url = _parse(url)
        self.shown_url = self._url.render_as_string(hide_password=True)
        self._schema = None if self._is_sqlite else (schema or f"hindcast_{run}")
        self._scratch = scratch
        self._engine = self._open()

    @property
    def _is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path | None:
        """The SQLite file, or None for another database."""
        return Path(self._url.database) if self._is_sqlite and self._url.database else None

    def scratch(self, suffix: str) -> "ReadModel":
        """A place for another fold of the same run, to be dropped again: a file or a schema next to this one."""
        url = self._url if self.file is None else self._url.set(database=f"{self.file}.{suffix}")
        plain = url.render_as_string(hide_password=False)
        return ReadModel(plain, run=self.run, schema=f"{self._schema}_{suffix}", scratch=True)

    def _open(self) -> Engine:
        try:
            engine = create_engine(self._url)
        except (NoSuchModuleError, ImportError) as error:
            raise SettingsError(
                f"storage.database = {self.shown_url}: its driver is not installed ({error}). Install it, for PostgreSQL "
                "`pip install psycopg[binary]` with postgresql+psycopg://…, or leave the setting empty for SQLite."
            ) from error
        if self._is_sqlite:
            event.listen(engine, "connect", _set_up_scratch if self._scratch else _set_up_sqlite)
            event.listen(engine, "begin", _begin)
        return engine.execution_options(schema_translate_map={None: self._schema}) if self._schema else engine

    def prepare(self) -> str | None:
        """Make the database ready to be folded into; returns what a person should be told, if anything.

        Raises:
            ForeignLog: it holds the read model of another run.
            ReadModelUnavailable: it does not answer, or holds tables that are not ours.

        """
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.writing() as connection:
            if self._schema:
                connection.execute(CreateSchema(self._schema, if_not_exists=True))
            found = set(inspect(connection).get_table_names(schema=self._schema))
            if cursor.name not in found:
                ours = sorted(found & set(metadata.tables))
                if ours:
                    raise ReadModelUnavailable(
                        f"{self.shown_url} holds tables of other people's ({', '.join(ours)}) and no cursor of ours. "
                        "Give the read model a database of its own: storage.database"
                    )
                self._create(connection)
                return None
            written_by = connection.scalar(
                select(cursor.c.schema_version).where(cursor.c.name == CURSOR_NAME)
            )
            if written_by != SCHEMA_VERSION:
                metadata.drop_all(connection)
                self._create(connection)
                return (
                    f"the read model in {self.shown_url} was written by schema version {written_by}; this Hindcast writes "
                    f"{SCHEMA_VERSION}. It was dropped and is folded again from the log; nothing is lost."
                )
            self._require_own_run(read_cursor(connection))
            return None

    def _create(self, connection: Connection) -> None:
        if self._scratch:
            for table in metadata.sorted_tables:
                connection.execute(CreateTable(table))
        else:
            metadata.create_all(connection)
        standing = msgspec.structs.asdict(Cursor(run=self.run))
        connection.execute(insert(cursor).values(name=CURSOR_NAME, **standing))

    def reset(self) -> None:
        """Empty it, so that it can be folded from the start of the log again; a projector at work notices and restarts."""
        with self.writing() as connection:
            metadata.drop_all(connection)
            self._create(connection)

    def drop(self) -> None:
        """Remove it: the whole file, or the whole schema."""
        if self._schema:
            with self.writing() as connection:
                connection.execute(DropSchema(self._schema, cascade=True, if_exists=True))
        self.close()
        if self.file is not None:
            for ending in ("", "-wal", "-shm"):
                Path(f"{self.file}{ending}").unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all of it is kept at the end of the block, or none of it."""
        with self._worded(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction in which every statement sees the same state of the database.

        Raises:
            ReadModelUnavailable: there is none yet, it does not answer, or another schema version wrote it.

        """
        self._require_existence()
        with self._worded(), self._engine.connect() as connection:
            if not self._is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                if not inspect(connection).has_table(cursor.name, schema=self._schema):
                    raise self._missing()
                written_by = connection.scalar(
                    select(cursor.c.schema_version).where(cursor.c.name == CURSOR_NAME)
                )
                if written_by != SCHEMA_VERSION:
                    raise ReadModelUnavailable(
                        f"the read model of run {self.run} was written by schema version {written_by}, this Hindcast reads "
                        f"{SCHEMA_VERSION}. Run: hindcast rebuild {self.run}"
                    )
                self._require_own_run(read_cursor(connection))
                yield connection

    def position(self) -> int:
        """How far it is; 0 when there is none yet."""
        try:
            with self.reading() as connection:
                standing = read_cursor(connection)
        except ReadModelUnavailable:
            return 0
        return standing.position if standing else 0

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    @contextmanager
    def _worded(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            advice = (
                "If the file is damaged, delete it: it is folded from the log again." if self.file else ""
            )
            raise ReadModelUnavailable(
                f"the read model in {self.shown_url} does not answer: {error.orig}. {advice}".rstrip()
            ) from error

    def _require_existence(self) -> None:
        if self.file is not None and not self.file.exists():
            raise self._missing()

    def _missing(self) -> ReadModelUnavailable:
        return ReadModelUnavailable(
            f"run {self.run} has no read model yet in {self.shown_url}: its projector writes it while the run is going. "
            f"Run: hindcast rebuild {self.run}"
        )

    def _require_own_run(self, standing: Cursor | None) -> None:
        if standing is not None and standing.run != self.run:
            raise ForeignLog(
                f"{self.shown_url} holds the read model of run {standing.run}, not of {self.run}. Give each run a database "
                "of its own: storage.database"
            )


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        raise SettingsError(
            "storage.database is not a database address; it looks like postgresql+psycopg://user@host/name or "
            "sqlite:////folder/file.sqlite"
        ) from error


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # Left to itself the driver begins a transaction only before a change, so two SELECTs of one reading could disagree.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _set_up_scratch(connection: sqlite3.Connection, record: Any) -> None:
    _set_up_sqlite(connection, record)
    connection.execute("PRAGMA synchronous=OFF")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
