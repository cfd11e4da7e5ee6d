"""Fixtures for everything that needs a log: a real nats-server with the real configuration, connections, logs.

The server listens on a free port of loopback and is stopped by its own process id.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from hindcast.core.settings.schema import LogSettings
from hindcast.events.jetstream.broker import BrokerPlan, prepare
from hindcast.events.jetstream.connection import Connection, connect
from hindcast.events.jetstream.stream_log import JetStreamLog
from servers.postgres_server import new_database, postgres, url  # noqa: F401  # fixtures

ROOT = Path(__file__).parents[1]
sys.path[:] = [entry for entry in sys.path if entry and Path(entry).resolve() != ROOT]
"""A worker of xdist has the current folder on its path: `core` would be importable by its bare name there."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell's background job and xdist's workers ignore Ctrl-C, and would have the systems under test ignore it too."""

hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")
"""How long an example takes says what else the machine does; speed is for the benchmarks."""

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Tests run in more processes than there are cores. Threads of one would spin while they wait for cores that another has."""

STOP_S = 20.0
APART = ("vllm", "peers")
"""Folders of tests that have environments of their own."""
LEFT_OUT = re.compile(r"not \w+( and not \w+)*")
"""What `-m` says where it only leaves tests out, as `make quick` does."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file out unimported where its marks say so: importing torch alone takes seconds.

    Tests with a real vLLM server and with other projects' packages are collected by name alone (`make test-vllm`).
    """
    chosen = config.option.markexpr
    if collection_path.name in APART:
        return None if chosen == collection_path.name else True
    if collection_path.suffix != ".py" or not LEFT_OUT.fullmatch(chosen):
        return None
    marks = re.search(r"^pytestmark = (.*?)\n\n", collection_path.read_text(), re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"pytest\.mark\.(\w+)", marks[1])) if marks else set()
    return True if named & set(re.findall(r"not (\w+)", chosen)) else None


Connect = Callable[..., Awaitable[Connection]]


class LiveBroker:
    """A nats-server under test: can be killed and started again on the same port and folder."""

    def __init__(self, home: Path) -> None:
        self.plan: BrokerPlan = prepare(home, port=0)
        self.home = home
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.plan.url

    def start(self) -> None:
        with open(self.home / "broker.txt", "ab") as output:
            self._process = subprocess.Popen(
                self.plan.command(), stdout=output, stderr=output, start_new_session=True
            )

    def kill(self) -> None:
        """As a crash would: signal 9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None


@pytest.fixture(autouse=True)
def unchanged_process() -> Iterator[None]:
    """A command that runs in this process sets its umask, and one that loads a consumer its path; other tests keep theirs."""
    before, path = os.umask(0o022), list(sys.path)
    os.umask(before)
    yield
    os.umask(before)
    sys.path[:] = path


@pytest.fixture(scope="session")
def model_families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folder of a tiny random model by the name of its family."""
    from fakes.model_families import write_families  # it loads torch, which most tests do not need

    return write_families(tmp_path_factory.mktemp("families"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """One server for all tests that do not harm it; every test takes a run name of its own."""
    live = LiveBroker(tmp_path_factory.mktemp("home"))
    live.start()
    yield live
    live.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[LiveBroker]:
    """A server of this test's own, to be killed and damaged."""
    live = LiveBroker(tmp_path / "home")
    live.start()
    yield live
    live.stop()


@pytest.fixture
def run_name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def log_settings() -> LogSettings:
    """Short bounds, so that a test of an outage does not take a minute."""
    return LogSettings(max_bytes=64 * 1024 * 1024, append_timeout_s=20, linger_ms=2)


@pytest.fixture
async def connect_as() -> AsyncIterator[Connect]:
    """`await connect_as(broker, role)`; closed at the end of the test."""
    opened: list[Connection] = []

    async def open_one(live: LiveBroker, role: str) -> Connection:
        connection = await connect(live.url, role=role, home=live.home, timeout_s=20)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        await connection.close()
    await asyncio.sleep(0)


@pytest.fixture
async def jetstream_log(
    broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings
) -> JetStreamLog:
    """A fresh run's log on the shared server, as its administrator."""
    return await JetStreamLog.create_or_open(await connect_as(broker, "admin"), run_name, log_settings)
