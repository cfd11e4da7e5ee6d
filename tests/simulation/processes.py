"""Roles as processes: started, killed at any await, stopped for longer than any lease, doubled, started again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from fakes.virtual_time import Lane, VirtualLoop, clock_ns
from hindcast.actors.curriculum.role import run_curriculum
from hindcast.actors.episodes.actor import run_actor
from hindcast.actors.judges.role import run_judge
from hindcast.core.errors import (
    BrokerUnreachable,
    BrowserUnavailable,
    EngineFailed,
    ExpectationFailed,
    LogFull,
)
from hindcast.core.settings.schema import Settings
from hindcast.events.archive.errors import ArchiveBusy
from hindcast.events.log.consumer import ConsumerStopped, Effect, consume
from hindcast.events.log.publisher import Publisher
from hindcast.learner.loop import run_learner
from simulation.links import Broker, Connection, MemoryBlobs
from simulation.stand_ins import DEMONSTRATORS, JUDGE, Mishaps, ScriptedEngine, ScriptedHost, SlowTrainer
from stories.curriculum_story import SOURCES

ORDINARY = (ArchiveBusy, BrokerUnreachable, BrowserUnavailable, EngineFailed, ExpectationFailed, LogFull)
"""Errors after which a supervisor starts a process again; any other end is a fault of ours."""

Role = Callable[[Connection, Publisher, asyncio.Event], Awaitable[None]]


class Site:
    """What all processes of a simulation share: the broker, the blobs, the draws."""

    def __init__(self, broker: Broker, blobs: MemoryBlobs, random: Random, mishaps: Mishaps) -> None:
        self.broker = broker
        self.blobs = blobs
        self.random = random
        self.mishaps = mishaps
        self.slowness = 0.0
        """Share of what is said over a connection that takes long."""
        self.processes: list[Process] = []
        self.refusals: list[BaseException] = []
        """Errors other than the ordinary ones, by which processes ended."""
        self.hosts: list[ScriptedHost] = []
        self.whole: Callable[[Connection], Any] = lambda connection: connection
        """The run's log, of which a connection reaches the stream."""


class Process:
    """One life of a role."""

    def __init__(self, site: Site, name: str, role: Role, settings: Settings) -> None:
        self.name = name
        self.finished = False
        """The role came to its own end."""
        self.killed = False
        self.lane = Lane(name)
        self._site = site
        self._role = role
        self._settings = settings
        self._stop = asyncio.Event()
        self._connection = Connection(site.broker, site.random, slowness=site.slowness)
        self._log = site.whole(self._connection)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self.over: asyncio.Future[None] = loop.create_future()
        self._task = loop.start(self.lane, self._live())
        site.processes.append(self)

    @property
    def running(self) -> bool:
        return not self.over.done()

    async def _live(self) -> None:
        try:
            async with publishing(self.name, self._log, self._site, self._settings) as publisher:
                await self._role(self._log, publisher, self._stop)
            self.finished = not self._stop.is_set()
        except asyncio.CancelledError:
            if not self.killed:
                raise
        except Exception as error:  # whatever a process of ours dies of is looked at
            if not self.killed:
                self._site.refusals += [found for found in leaves(error) if not isinstance(found, ORDINARY)]
        finally:
            if not self.over.done():
                self.over.set_result(None)

    def kill(self) -> None:
        """Signal 9: nothing of it runs any more."""
        if self.running:
            self.killed = self._connection.cut = True
            self._loop.freeze(self.lane)
            for close in self._connection.at_kill:
                close()
            self.over.set_result(None)

    def kill_after(self, turns: int) -> None:
        """Signal 9 once so many of its callbacks have run: between any two awaits."""
        self.lane.fuse, self.lane.at_fuse_end = turns, self.kill

    def stop(self) -> None:
        """Signal 15."""
        self._stop.set()

    async def pause(self, seconds: float) -> None:
        """Signal 19, and 18 later."""
        self._loop.freeze(self.lane)
        await asyncio.sleep(seconds)
        if not self.killed:
            self._loop.thaw(self.lane)

    def let_go(self) -> None:
        """Let what is left of it unwind; nothing of it can reach anybody."""
        self.lane.fuse = 0
        self._connection.cut = self.killed = True
        self._loop.thaw(self.lane)
        self._task.cancel()

    async def bury(self) -> None:
        """The same, and wait for it."""
        self.let_go()
        await asyncio.wait([self._task])


@asynccontextmanager
async def publishing(name: str, log: Any, site: Site, settings: Settings) -> AsyncIterator[Publisher]:
    publisher = Publisher(
        log,
        producer=name,
        code_rev="simulated",
        settings=settings.log,
        clock_ns=clock_ns,
        randomness=site.random.randbytes,
    )
    async with publisher:
        yield publisher


def leaves(error: BaseException) -> list[BaseException]:
    """The errors themselves, out of the groups that task groups wrap them in."""
    if isinstance(error, BaseExceptionGroup):
        return [found for inner in error.exceptions for found in leaves(inner)]
    return [error]


# ---- roles ----------------------------------------------------------------------------------------------------------


def curriculum(site: Site, settings: Settings) -> Role:
    async def role(connection: Connection, publisher: Publisher, stop: asyncio.Event) -> None:
        await run_curriculum(
            log=connection,
            publisher=publisher,
            blobs=site.blobs,  # type: ignore[arg-type]
            sources=SOURCES,
            settings=settings,
            stop=stop,
            demonstrators=DEMONSTRATORS.keys(),
        )

    return role


def actor(site: Site, settings: Settings, name: str) -> Role:
    async def role(connection: Connection, publisher: Publisher, stop: asyncio.Event) -> None:
        host = ScriptedHost(site.mishaps)
        site.hosts.append(host)
        await run_actor(
            name=name,
            log=connection,
            publisher=publisher,
            queue=await connection.open_queue("actors", family="request", dead_letters=publisher),
            engine=ScriptedEngine(site.mishaps),
            host=host,
            sites={name: name for name in SOURCES},  # type: ignore[misc]
            blobs=site.blobs,  # type: ignore[arg-type]
            settings=settings,
            stop=stop,
            demonstrators=DEMONSTRATORS,
        )

    return role


def judge(site: Site, settings: Settings) -> Role:
    async def role(connection: Connection, publisher: Publisher, stop: asyncio.Event) -> None:
        await run_judge(
            log=connection,
            publisher=publisher,
            queue=await connection.open_queue("judges", family="episode_end", dead_letters=publisher),
            settings=settings,
            blobs=site.blobs,  # type: ignore[arg-type]
            stop=stop,
            judges={"rules": JUDGE},
        )

    return role


def learner(site: Site, until_updates: int) -> Role:
    async def role(connection: Connection, publisher: Publisher, stop: asyncio.Event) -> None:
        await run_learner(
            connection,
            site.blobs,  # type: ignore[arg-type]
            publisher=publisher,
            policy=Path(),
            until_updates=until_updates,
            make_trainer=SlowTrainer,
        )

    return role


def consumer(effect: Effect) -> Role:
    async def role(connection: Connection, publisher: Publisher, stop: asyncio.Event) -> None:
        try:
            await consume(connection, effect, name="view", dead_letters=publisher)
        except ConsumerStopped as error:
            raise BrokerUnreachable(str(error)) from error

    return role
