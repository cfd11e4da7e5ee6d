"""Somebody who reads a run's log while it grows, and writes down what it saw and when: what a reader saw was acknowledged.

Follows in a thread of its own, through every outage of the broker.
"""

import asyncio
import time
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from hindcast.app.runs.runs import open_run
from hindcast.core.errors import BrokerUnreachable
from hindcast.events.log.reader import tail


class Sight(NamedTuple):
    """One event as it was seen."""

    position: int
    digest: bytes
    type: str
    producer: str
    incarnation: str
    at_s: float
    """By `time.monotonic`."""


class Witness:
    """Use as a context manager; `sights` grows meanwhile."""

    def __init__(self, home: Path, run: str) -> None:
        self._home = home
        self._run = run
        self._over = Event()
        self._thread = Thread(target=self._witness, daemon=True)
        self.sights: list[Sight] = []
        self.outages = 0
        """Times the log did not answer for longer than a reader waits."""
        self.failure: Exception | None = None
        """The log was not what it had been."""

    def __enter__(self) -> "Witness":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def count(self, kind: str) -> int:
        """How many events of a type were seen."""
        return sum(sight.type == kind for sight in self.sights)

    def _witness(self) -> None:
        try:
            asyncio.run(self._follow())
        except Exception as error:
            self.failure = error

    async def _follow(self) -> None:
        while not self._over.is_set():
            reading = asyncio.create_task(self._read())
            while not (self._over.is_set() or reading.done()):  # noqa: ASYNC110 - set by another thread
                await asyncio.sleep(0.1)
            reading.cancel()
            try:
                await reading
            except asyncio.CancelledError:
                return
            except BrokerUnreachable:
                self.outages += 1
                await asyncio.sleep(0.5)

    async def _read(self) -> None:
        async with open_run(self._run, home=self._home).connect_log() as log:
            async for recorded in tail(log, after=self.sights[-1].position if self.sights else 0):
                envelope = recorded.envelope
                self.sights.append(
                    Sight(
                        recorded.position,
                        recorded.digest,
                        envelope.type,
                        envelope.producer,
                        envelope.incarnation,
                        time.monotonic(),
                    )
                )
