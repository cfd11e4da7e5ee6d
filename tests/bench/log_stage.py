"""Where the log is measured: a broker of its own with the real configuration, and the plain client beside ours.

Everything lies in one folder, so that ours, the raw client and the peer write to the same disk.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from statistics import median

import nats
import psutil
from nats.aio.client import Client

from hindcast.app.system.broker import ensure_broker, running_broker
from hindcast.core.settings.schema import LogSettings
from hindcast.events.jetstream.accounts import inbox_prefix
from hindcast.events.jetstream.broker import secret_path
from hindcast.events.jetstream.connection import Connection, connect
from hindcast.events.jetstream.stream_log import JetStreamLog

SETTINGS = LogSettings()
"""What is measured is the default."""


MICROSECONDS = 1_000_000


class Timing:
    """One measurement."""

    per_s: float = 0.0
    """Events per second, once it is over."""


class Stage:
    """A running broker, connections by role, and as many empty logs as are asked for."""

    def __init__(self, url: str, home: Path) -> None:
        """Use `stage`."""
        self.home = home
        self._url = url
        self._runs = count()
        self._connections: dict[str, Connection] = {}
        self._plain: dict[str, Client] = {}
        self._costs: defaultdict[str, list[float]] = defaultdict(list)
        state = running_broker(home)
        assert state is not None, "a stage has a broker"
        self._broker = psutil.Process(state.pid)

    @contextmanager
    def timing(self, name: str, events: int) -> Iterator[Timing]:
        """Measure the block, which does so many events; the processor time of client and broker is kept by name."""
        timing = Timing()
        cpu_s, began = self._cpu_s(), time.perf_counter()
        yield timing
        timing.per_s = events / (time.perf_counter() - began)
        self._costs[name].append((self._cpu_s() - cpu_s) / events * MICROSECONDS)

    @property
    def cpu_us(self) -> dict[str, float]:
        """Median processor time per event, client and broker together, by the name of the measurement."""
        return {name: median(costs) for name, costs in self._costs.items()}

    def _cpu_s(self) -> float:
        broker = self._broker.cpu_times()
        return time.process_time() + float(broker.user + broker.system)

    async def new_run(self) -> str:
        """An empty log, by the name of its run."""
        run = f"bench{next(self._runs):05}"
        await JetStreamLog.create_or_open(await self.connection("admin"), run, SETTINGS)
        return run

    async def log(self, run: str, role: str) -> JetStreamLog:
        """A run's log as a role sees it."""
        return await JetStreamLog.open(await self.connection(role), run, SETTINGS)

    async def connection(self, role: str) -> Connection:
        """Our connection of a role."""
        if role not in self._connections:
            self._connections[role] = await connect(self._url, role=role, home=self.home)
        return self._connections[role]

    async def plain(self, role: str) -> Client:
        """The client library as it comes, as a role."""
        if role not in self._plain:
            self._plain[role] = await nats.connect(
                self._url,
                user=role,
                password=secret_path(self.home, role).read_text().strip(),
                inbox_prefix=inbox_prefix(role),
            )
        return self._plain[role]

    async def close(self) -> None:
        """Close every connection."""
        for client in (*self._connections.values(), *self._plain.values()):
            await client.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def stage(home: Path) -> AsyncIterator[Stage]:
    """A broker whose store lies in `home`, stopped at the end."""
    async with ensure_broker(home) as url:
        opened = Stage(url, home)
        try:
            yield opened
        finally:
            await opened.close()
