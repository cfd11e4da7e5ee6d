"""A real PostgreSQL server for the tests: its own folder, a free port of loopback, stopped by its own process id.

Debian: `apt-get install postgresql`. Databases are made with a linguistic order of text where the server can, since that
is where two databases differ most easily. Everybody needs a password, so that the way it is given is tested too.
"""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

WAIT_S = 30.0
POLL_S = 0.05
PASSWORD = f"never-to-be-seen-{secrets.token_hex(4)}"
ICU_SINCE = 15

NewDatabase = Callable[[], str]
"""The address of a database that nobody else uses."""


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`: Debian keeps them off the path."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class LivePostgres:
    """A server under test: can be stopped as a crash would, and started again on the same port and folder."""

    def __init__(self, programs: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hindcast-postgres-"))
        self.port = _free_port()
        self._programs = programs
        self._owner = _owner()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = count()
        self._free: list[str] = []
        if self._owner:
            os.chown(self.folder, pwd.getpwnam(self._owner).pw_uid, -1)
        (self.folder / "password").write_text(PASSWORD)
        self._run("initdb", "-D", self._data, "-U", "tester", "-A", "scram-sha-256", "-E", "UTF8", "--no-sync",
                  "--locale=C", f"--pwfile={self.folder / 'password'}")  # fmt: skip

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S, user=self._owner, cwd="/")

    def start(self) -> None:
        """Return once it answers."""
        options = (
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "shared_buffers=16MB",
        )
        command = [str(self._programs / "postgres"), "-D", self._data, "-p", str(self.port)]
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *(part for option in options for part in ("-c", option))],
                stdout=output,
                stderr=output,
                start_new_session=True,
                user=self._owner,
                cwd="/",
            )
        until = time.monotonic() + WAIT_S
        while True:
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "output.txt").read_text()
                assert time.monotonic() < until
                time.sleep(POLL_S)

    def stop(self) -> None:
        """At once, as a crash would: everybody's connection is cut."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(WAIT_S)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="tester", dbname=database, autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    def address(self, database: str) -> str:
        return f"postgresql+psycopg://tester@127.0.0.1:{self.port}/{database}"

    def take_database(self) -> str:
        """The name of an empty database. Making one takes a second on a slow disk, so they are used again."""
        if self._free:
            return self._free.pop()
        name = f"test_{next(self._databases)}"
        icu = " LOCALE_PROVIDER icu ICU_LOCALE 'en-US'" if self._version() >= ICU_SINCE else ""
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0{icu}")
        return name

    def give_back(self, database: str) -> None:
        """Empty it for the next test."""
        drop = (
            "DO $$ DECLARE name text; BEGIN FOR name IN SELECT nspname FROM pg_namespace WHERE nspname LIKE 'hindcast%' "
            "LOOP EXECUTE format('DROP SCHEMA %I CASCADE', name); END LOOP; END $$"
        )
        self.execute(drop, database=database)
        self._free.append(database)

    def _version(self) -> int:
        return int((Path(self._data) / "PG_VERSION").read_text().strip().partition(".")[0])


def _owner() -> str | None:
    """Whom the server runs as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgres() -> Iterator[LivePostgres]:
    """One server for all tests; those that stop it start it again."""
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed here: apt-get install postgresql")
    patch = pytest.MonkeyPatch()
    patch.setenv("PGPASSWORD", PASSWORD)
    server = LivePostgres(programs)
    server.start()
    yield server
    server.remove()
    patch.undo()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.process)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewDatabase]:
    """Every test that asks for it runs on both."""
    if request.param == "sqlite":
        numbers = count()
        yield lambda: f"sqlite:///{tmp_path}/readmodel-{next(numbers)}.sqlite"
        return
    server: LivePostgres = request.getfixturevalue("postgres")
    taken: list[str] = []

    def take() -> str:
        taken.append(server.take_database())
        return server.address(taken[-1])

    yield take
    for database in taken:
        server.give_back(database)


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    """One database."""
    return new_database()
