"""A read model's database: opened, prepared for its log, written and read in transactions.

There are no migrations. A read model can be dropped and folded again from the log (invariant 1), so `prepare` drops one of
another schema version, and reports it.
SQLite keeps one file per run, in WAL mode, so that readers and the one writer do not wait for each other. Databases with
schemas get one per run.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from sqlalchemy import Connection, func, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateSchema, CreateTable, DropSchema

from hindcast.core.errors import DiskFull, ForeignLog, HindcastError
from hindcast.storage.readmodel.address import open_engine, parse, schema_name, without_secrets
from hindcast.storage.readmodel.fold import CURSOR_NAME, Cursor, read_cursor
from hindcast.storage.readmodel.tables import FOLD_INDEXES, OPEN, SCHEMA_VERSION, TABLES, cursor, metadata

SQLITE_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""Primary result codes; a full disk is an I/O error if it is met in the WAL or its index instead of the file itself."""


SQLITE_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Primary result codes."""


POSTGRES_NO_ROOM = "53100"
"""SQLSTATE `disk_full`."""


class ReadModelUnavailable(HindcastError):
    """There is no read model to query, or its database does not answer."""


class ReadModelDamaged(ReadModelUnavailable):
    """Its SQLite file is damaged. It follows from the log and can be folded again."""


class DatabaseAway(ReadModelUnavailable):
    """The database does not answer now, but may later. Whether the transaction was committed is unknown."""


class ReadModelFull(DatabaseAway, DiskFull):
    """The database's disk is full. The transaction was rolled back."""


class ReadModel:
    """The read model of one run in one database. Blocking: async code calls it through `asyncio.to_thread`."""

    def __init__(self, url: str, *, run: str, schema: str | None = None, scratch: bool = False) -> None:
        """`schema`: of the tables in databases that have schemas; by default named after the run.
        `scratch`: only to be filled, compared and dropped; has no views and only the fold's indexes, and a power cut may
        damage it.

        Raises:
            SettingsError: the address is invalid, or its driver is not installed.
        """
        self.run = run
        self._url = parse(url)
        self.shown_url = without_secrets(self._url)
        self.schema = None if self._is_sqlite else (schema or schema_name(run))
        """Schema of the tables; None in a database without schemas."""
        self.is_scratch = scratch
        engine = open_engine(self._url, scratch=scratch)
        self._engine = (
            engine.execution_options(schema_translate_map={None: self.schema}) if self.schema else engine
        )

    @property
    def _is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path | None:
        """The SQLite file, or None for another database."""
        return Path(self._url.database) if self._is_sqlite and self._url.database else None

    def scratch(self, suffix: str) -> "ReadModel":
        """A temporary place for another fold of the same run: a file or a schema next to this one."""
        url = self._url if self.file is None else self._url.set(database=f"{self.file}.{suffix}")
        schema = None if self._is_sqlite else schema_name(self.run, f"_{suffix}")
        return ReadModel(url.render_as_string(), run=self.run, schema=schema, scratch=True)

    def prepare(self) -> str | None:
        """Prepare the database for folding; returns a message for the user, if there is one.

        Raises:
            ForeignLog: it holds the read model of another run.
            ReadModelUnavailable: it does not answer, or holds tables that are not ours.
        """
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.writing() as connection:
            if self.schema and not inspect(connection).has_schema(self.schema):
                connection.execute(CreateSchema(self.schema, if_not_exists=True))
            tables = set(inspect(connection).get_table_names(schema=self.schema))
            if cursor.name not in tables:
                same_names = sorted(tables & set(metadata.tables))
                if same_names:
                    raise ReadModelUnavailable(
                        f"{self.shown_url} holds foreign tables with the same names ({', '.join(same_names)}) and no cursor of ours. "
                        "Give the read model a database of its own: storage.database"
                    )
                self._create(connection)
                return None
            written_by = connection.scalar(
                select(cursor.c.schema_version).where(cursor.c.name == CURSOR_NAME)
            )
            if written_by != SCHEMA_VERSION:
                self._drop_all(connection)
                self._create(connection)
                return (
                    f"the read model in {self.shown_url} was written by schema version {written_by}; this Hindcast writes "
                    f"{SCHEMA_VERSION}. It was dropped and is folded again from the log; nothing is lost."
                )
            self._require_own_run(read_cursor(connection))
            return None

    def _create(self, connection: Connection) -> None:
        if self.is_scratch:
            for table in metadata.sorted_tables:
                connection.execute(CreateTable(table))
            for index in FOLD_INDEXES:
                connection.execute(CreateIndex(index))
        else:
            metadata.create_all(connection)
            create_views(connection, schema=self.schema)
        standing = msgspec.structs.asdict(Cursor(run=self.run))
        connection.execute(insert(cursor).values(name=CURSOR_NAME, **standing))

    def _drop_all(self, connection: Connection) -> None:
        drop_views(connection, schema=self.schema)
        metadata.drop_all(connection)

    def reset(self) -> None:
        """Empty it, so that it can be folded again from the start of the log; a running projector notices and restarts."""
        with self.writing() as connection:
            self._drop_all(connection)
            self._create(connection)

    def drop(self) -> None:
        """Remove it: the whole file, or the whole schema."""
        if self.schema:
            with self.writing() as connection:
                connection.execute(DropSchema(self.schema, cascade=True, if_exists=True))
        self.close()
        if self.file is not None:
            for ending in ("", "-wal", "-shm"):
                Path(f"{self.file}{ending}").unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that commits at the end of the block, or not at all."""
        with self._worded(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction in which every statement sees the same state of the database, and none changes it.

        Tables need no schema in plain SQL.

        Raises:
            ReadModelUnavailable: there is none yet, it does not answer, or another schema version wrote it.
        """
        self._require_existence()
        with self._worded(), self._engine.connect() as connection:
            if not self._is_sqlite:
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with connection.begin(), self._reading_only(connection):
                if not inspect(connection).has_table(cursor.name, schema=self.schema):
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

    @contextmanager
    def _reading_only(self, connection: Connection) -> Iterator[None]:
        if not self._is_sqlite:
            connection.execute(select(func.set_config("search_path", f'"{self.schema}"', True)))
            yield
            return
        connection.execute(text("PRAGMA query_only = ON"))
        try:
            yield
        finally:  # the next user of the connection may write
            connection.execute(text("PRAGMA query_only = OFF"))

    def position(self) -> int:
        """Position of the read model; 0 if there is none yet."""
        try:
            with self.reading() as connection:
                standing = read_cursor(connection)
        except ReadModelUnavailable:
            return 0
        return standing.position if standing else 0

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _worded(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            error_text = " ".join(str(error.orig).split())
            if self._is_sqlite and _primary_code(error) in SQLITE_DAMAGED:
                raise ReadModelDamaged(
                    f"the read model in {self.shown_url} is damaged: {error_text}. It is folded from the log again by: "
                    f"hindcast rebuild {self.run} --replace"
                ) from error
            advice = (
                f"If the file is damaged: hindcast rebuild {self.run} --replace"
                if self.file
                else "Check that the server runs there and accepts this user. A password comes from PGPASSWORD or ~/.pgpass."
            )
            if _is_full(error):
                raise ReadModelFull(
                    f"the read model in {self.shown_url} has no room: {error_text}. Nothing is lost: free some, and it continues."
                ) from error
            kind = DatabaseAway if self._may_pass(error) else ReadModelUnavailable
            raise kind(
                f"the read model in {self.shown_url} does not answer: {error_text}. {advice}"
            ) from error

    def _may_pass(self, error: DBAPIError) -> bool:
        """Whether waiting may help: servers return, and neither side says reliably why a connection was refused."""
        if self._is_sqlite:
            return _primary_code(error) == sqlite3.SQLITE_BUSY
        return isinstance(error, OperationalError) or error.connection_invalidated

    def _require_existence(self) -> None:
        if self.file is not None and not self.file.exists():
            raise self._missing()

    def _missing(self) -> ReadModelUnavailable:
        if self.file is not None and self.file.exists():
            return ReadModelUnavailable(
                f"the read model in {self.shown_url} holds nothing: its file is empty, or its projector has just begun. "
                f"Run: hindcast rebuild {self.run}"
            )
        return ReadModelUnavailable(
            f"run {self.run} has no read model yet in {self.shown_url}: its projector writes it while the run is active. "
            f"Run: hindcast rebuild {self.run}"
        )

    def _require_own_run(self, standing: Cursor | None) -> None:
        if standing is not None and standing.run != self.run:
            raise ForeignLog(
                f"{self.shown_url} holds the read model of run {standing.run}, not of {self.run}. Give each run a database "
                "of its own: storage.database"
            )


def _primary_code(error: DBAPIError) -> int | None:
    """SQLite's primary result code; None from another database."""
    extended = getattr(error.orig, "sqlite_errorcode", None)
    return None if extended is None else extended & 0xFF


def _is_full(error: DBAPIError) -> bool:
    return _primary_code(error) in SQLITE_NO_ROOM or getattr(error.orig, "sqlstate", None) == POSTGRES_NO_ROOM


SUFFIX = "_current"


VIEWS: dict[str, str] = {f"{name}{SUFFIX}": name for name, table in TABLES.items() if table.info["versioned"]}
"""Name of each view -> the table whose open rows it shows."""


def columns_of(view: str) -> dict[str, str]:
    """The columns of a view with their descriptions."""
    return {
        column.name: column.comment or "" for column in TABLES[VIEWS[view]].c if column.name != "valid_to"
    }


def comment_of(view: str) -> str:
    """A sentence that describes a view."""
    return f"Rows of {VIEWS[view]} that hold now, at the position that the read model has reached."


def create_views(connection: Connection, *, schema: str | None) -> None:
    """Create every view; the tables must exist."""
    for view in VIEWS:
        for statement in _definition(connection, view, schema):
            connection.exec_driver_sql(statement)


def drop_views(connection: Connection, *, schema: str | None) -> None:
    """Drop all views: PostgreSQL keeps a table that a view uses."""
    for view in VIEWS:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {_qualified_name(connection, view, schema)}")


def _definition(connection: Connection, view: str, schema: str | None) -> Iterator[str]:
    quote = connection.dialect.identifier_preparer.quote
    view_name = _qualified_name(connection, view, schema)
    column_texts = columns_of(view)
    yield (
        f"CREATE VIEW {view_name} AS SELECT {', '.join(map(quote, column_texts))} "
        f"FROM {_qualified_name(connection, VIEWS[view], schema)} WHERE valid_to = {OPEN}"
    )
    if connection.dialect.supports_comments:
        yield f"COMMENT ON VIEW {view_name} IS {_literal(comment_of(view))}"
        for name, text in column_texts.items():
            yield f"COMMENT ON COLUMN {view_name}.{quote(name)} IS {_literal(text)}"


def _qualified_name(connection: Connection, name: str, schema: str | None) -> str:
    quote = connection.dialect.identifier_preparer.quote
    return f"{quote(schema)}.{quote(name)}" if schema else quote(name)


def _literal(text: str) -> str:
    """The text as an SQL constant."""
    return "'" + text.replace("'", "''") + "'"
