"""The peer `eventsourcing`, in an environment of its own, on the same disk: one durable insert at a time, and replay.

Its steps carry the same fields as ours, as its JSON. SQLite as the library opens it: write-ahead log, `synchronous`
FULL, so each saved event is synced to the disk as ours are.
"""

import asyncio
import json
from pathlib import Path

import msgspec

from bench.peers import peer_python
from hindcast.core.errors import HindcastError

NAME = "eventsourcing"
VERSION = "9.5.6"
DRIVER = "log_eventsourcing_driver.py"
SYNCHRONOUS_FULL = 2


class PeerFailed(HindcastError):
    """The peer's program ended with an error."""


class PeerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver prints."""

    events: int
    events_per_s: float
    cpu_us: float
    """Processor time per event."""
    synchronous: int
    """SQLite's setting: 2 is FULL."""
    journal_mode: str
    event_bytes: float
    """Mean size in its database."""


class EventSourcing:
    """The peer with a folder for its databases."""

    def __init__(self, folder: Path, *, home: Path) -> None:
        """`home`: where its environment is made, once."""
        self._folder = folder
        self._home = home
        self._costs: dict[str, float] = {}

    @property
    def cpu_us(self) -> dict[str, float]:
        """Processor time per event by what was done, of the last measurement."""
        return self._costs

    async def insert(self, events: int) -> float:
        """Events per second, each saved by itself."""
        return await self._measure("insert", events)

    async def fill(self, events: int) -> None:
        """Material for `replay`."""
        await self._measure("fill", events)

    async def replay(self) -> float:
        """Events per second: selected, decoded, applied to their aggregates."""
        return await self._measure("replay", 0)

    async def _measure(self, mode: str, events: int) -> float:
        python = await asyncio.to_thread(peer_python, NAME, (f"{NAME}=={VERSION}",), home=self._home)
        self._folder.mkdir(parents=True, exist_ok=True)
        program = await asyncio.create_subprocess_exec(
            str(python),
            str(Path(__file__).with_name(DRIVER)),
            mode,
            str(self._folder),
            str(events),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await program.communicate()
        if program.returncode != 0:
            raise PeerFailed(f"the peer {NAME} failed to {mode}: {errors.decode()[-800:]}")
        figures = msgspec.convert(json.loads(output), PeerFigures)
        assert figures.synchronous == SYNCHRONOUS_FULL, "the peer does not sync: nothing to compare with"
        self._costs[f"{NAME}: {mode}"] = figures.cpu_us
        return figures.events_per_s
