"""A curriculum on a log in memory, and the episodes that end for it."""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fakes.virtual_time import clock_ns, clock_s
from hindcast.actors.curriculum.role import RoomCheck, run_curriculum
from hindcast.core.domain.evidence import Evidence
from hindcast.events.catalogue import (
    EpisodeEnded,
    EpisodeRequested,
)
from hindcast.events.envelope import Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from simulation.links import MemoryBlobs
from stories.curriculum_story import SOURCES, settings_of


class Bench:
    """A log in memory, in virtual time."""

    def __init__(self, **curriculum: Any) -> None:
        self.settings = settings_of(curriculum=curriculum, log={"append_timeout_s": 20})
        self.log = MemoryLog("r", clock=clock_s)
        self.blobs: Any = MemoryBlobs(Path())
        self.clock_ahead_s = 0
        """How far the wall clock that events are stamped with is ahead of time."""

    def publisher(self, name: str) -> Publisher:
        def stamp_ns() -> int:
            return clock_ns() + self.clock_ahead_s * 10**9

        return Publisher(self.log, producer=name, code_rev="", settings=self.settings.log, clock_ns=stamp_ns)

    async def tell(self, *facts: Fact) -> None:
        async with self.publisher("story") as publisher:
            for fact in facts:
                await publisher.decide(fact, entity=getattr(fact, "episode", "e"))

    async def decide(
        self,
        *,
        for_s: float = 5,
        name: str = "curriculum.1",
        until_episodes: int | None = None,
        log: Any = None,
        room_check: RoomCheck | None = None,
        shown_by: Collection[tuple[str, str]] = (),
    ) -> None:
        stop = asyncio.Event()
        async with self.publisher(name) as publisher, asyncio.TaskGroup() as tasks:
            tasks.create_task(
                run_curriculum(
                    log=log or self.log,
                    publisher=publisher,
                    blobs=self.blobs,
                    sources=SOURCES,
                    settings=self.settings,
                    stop=stop,
                    until_episodes=until_episodes,
                    room_check=room_check,
                    demonstrators=shown_by,
                )
            )
            await asyncio.sleep(for_s)
            stop.set()

    async def facts(self, *kinds: type[Fact]) -> list[Any]:
        return [recorded.fact async for recorded in read(self.log) if isinstance(recorded.fact, kinds)]


def ended(request: EpisodeRequested) -> EpisodeEnded:
    return EpisodeEnded(
        episode=request.episode,
        task_id=request.task.id,
        actor="actor.1",
        reason="done",
        steps=0,
        evidence=Evidence(answer=None, final_url="", probes={}),
        final_observation=None,
        policy_versions=(0, 0),
        duration_ms=1.0,
    )
