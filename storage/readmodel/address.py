"""Database addresses (`storage.database`, `--store`): which are accepted, and how each kind of database is opened.

An address must not hold a password: it is stored in the run's first event or in files that others read.
"""

import sqlite3
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from hindcast.core.errors import SettingsError

BUSY_TIMEOUT_MS = 10_000
"""How long to wait for another writer of the same SQLite file."""
POSTGRESQL: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "hindcast",
}
"""Connection options that detect an unreachable server within half a minute (seconds; `tcp_user_timeout` in ms)."""
LONGEST_NAME = 63
"""Bytes of a PostgreSQL identifier; longer ones would be cut silently."""
SECRETS = ("password", "sslpassword")
SETTING = "storage.database"
PSYCOPG = "psycopg"
"""The driver that `POSTGRESQL` is for, by SQLAlchemy's name."""
EXAMPLES = "postgresql+psycopg://user@host/name or sqlite:////folder/file.sqlite"


def parse(address: str, *, source: str = SETTING) -> URL:
    """Parse and check an address. `source`: the setting or option that holds it, for messages.

    Raises:
        SettingsError: it is no address, of an unsupported database or driver, or holds a password.
    """
    try:
        url = make_url(address)
    except ArgumentError as error:
        raise SettingsError(f"{source} is not a database address; it looks like {EXAMPLES}") from error
    if url.password is not None or any(name in url.query for name in SECRETS):
        raise SettingsError(
            f"{source} = {without_secrets(url)} holds a password. The address is kept in the run's first event or in files that "
            "others read, so leave it out there and give it to the processes in their environment (PGPASSWORD) or in a "
            "file that only you can read (~/.pgpass, or PGPASSFILE)"
        )
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise SettingsError(f"{source} = {without_secrets(url)}: it can be SQLite or PostgreSQL: {EXAMPLES}")
    if url.get_backend_name() == "postgresql" and (driver := _driver(url)) != PSYCOPG:
        raise SettingsError(
            f"{source} = {without_secrets(url)} names the driver {driver!r}. Our connections (time limits, keep-alives, the errors "
            "of a server that is gone) are made and tested with psycopg 3 alone. Write it as postgresql+psycopg://… and, "
            "where it is missing, `pip install 'hindcast[postgres]'`"
        )
    return url


def _driver(url: URL) -> str:
    """The part after the plus, else SQLAlchemy's default."""
    return url.drivername.partition("+")[2] or url.get_driver_name()


def without_secrets(url: URL) -> str:
    """The address without secrets."""
    without_query = url.difference_update_query(SECRETS)
    return without_query.render_as_string(hide_password=True)


def open_engine(url: URL, *, scratch: bool = False, source: str = SETTING) -> Engine:
    """An engine for a checked address; does not connect yet. `scratch`: a power cut may damage it; `source`: see `parse`.

    Raises:
        SettingsError: its driver is not installed, or is asynchronous.
    """
    sqlite = url.get_backend_name() == "sqlite"
    try:
        engine = create_engine(url, **({} if sqlite else {"connect_args": POSTGRESQL, "pool_pre_ping": True}))
    except (NoSuchModuleError, ImportError) as error:
        raise SettingsError(
            f"{source} = {without_secrets(url)}: its driver is not installed ({error}). Install it, for PostgreSQL "
            "`pip install 'hindcast[postgres]'` with postgresql+psycopg://…, or leave it empty for SQLite."
        ) from error
    if engine.dialect.is_async:
        raise SettingsError(
            f"{source} = {without_secrets(url)}: this driver is for asynchronous programs. Use one of {EXAMPLES}"
        )
    if sqlite:
        event.listen(engine, "connect", _set_up_scratch if scratch else _set_up_sqlite)
        event.listen(engine, "begin", _begin)
    return engine


def schema_name(run: str, suffix: str = "") -> str:
    """The schema of a run's tables; names that are too long are cut and get a digest."""
    name = f"hindcast_{run}{suffix}"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    run_length = LONGEST_NAME - len("hindcast_") - len(suffix) - 9
    return f"hindcast_{run[:run_length]}_{sha256(run.encode()).hexdigest()[:8]}{suffix}"


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # By default the driver begins a transaction only before a change, so two SELECTs of one reading could disagree.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _set_up_scratch(connection: sqlite3.Connection, record: Any) -> None:
    _set_up_sqlite(connection, record)
    connection.execute("PRAGMA synchronous=OFF")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
