"""A curriculum in phases over a log in memory: actors, judge and learner are told what they do."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fakes.bare_step import bare_step
from fakes.virtual_time import clock_ns, clock_s
from hindcast.actors.curriculum.feasibility import FirstState, Valuer
from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.role import run_curriculum
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.curriculum.task_generator import TaskGenerator
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.observation import Page
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    TaskProposed,
    WeightsPublished,
)
from hindcast.events.envelope import Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from simulation.links import MemoryBlobs
from stories.curriculum_story import NOTHING, RULES, published

PHASE = 8
TASKS = 6


def settings_of(**evolution: Any) -> Settings:
    return decode_settings(
        {
            "sites": {"products": 60},
            "curriculum": {
                "environments": ("store",),
                "families": ("store/find_price", "store/find_rating", "store/buy", "store/order_status"),
                "task_pool": 3,
                "group_size": 2,
                "max_running": 8,
                "revisit_share": 0.25,
            },
            "learner": {"phase_episodes": PHASE, "group_batch": 4},
            "evolution": {"generator": "embedded", "tasks_per_phase": TASKS, **evolution},
            "log": {"append_timeout_s": 20},
        }
    )


class Lengths:
    """A critic to whom long instructions look easy: V follows from the words alone."""

    def __init__(self) -> None:
        self.asked = 0

    def values(self, states: Sequence[FirstState], published: WeightsPublished) -> list[float]:
        self.asked += len(states)
        return [(len(state.task.instruction) % 11) / 10 for state in states]


class Bench:
    """A curriculum over a log in memory; actors, judge and learner are told."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        valuer: Valuer | None = None,
        inventor: TaskGenerator | None = None,
    ) -> None:
        self.settings = settings or settings_of()
        self.log = MemoryLog("r", clock=clock_s)
        self.blobs: Any = MemoryBlobs(Path())
        self.sources = {"store": StoreTasks(self.settings.sites)}
        self.valuer = valuer
        self.inventor = inventor
        self.played: set[str] = set()

    def publisher(self, name: str) -> Publisher:
        return Publisher(self.log, producer=name, code_rev="", settings=self.settings.log, clock_ns=clock_ns)

    async def tell(self, *facts: Fact, by: str = "story") -> None:
        async with self.publisher(by) as publisher:
            for fact in facts:
                await publisher.decide(fact, entity=entity_of(fact))

    async def decide(self, *, for_s: float = 3, name: str = "curriculum.1") -> None:
        stop = asyncio.Event()
        async with self.publisher(name) as publisher, asyncio.TaskGroup() as tasks:
            tasks.create_task(
                run_curriculum(
                    log=self.log,
                    publisher=publisher,
                    blobs=self.blobs,
                    sources=self.sources,
                    settings=self.settings,
                    stop=stop,
                    demonstrators=(),
                    valuer=self.valuer,
                    inventor=self.inventor,
                )
            )
            await asyncio.sleep(for_s)
            stop.set()

    async def facts(self, *kinds: type[Fact]) -> list[Any]:
        return [recorded.fact async for recorded in read(self.log) if isinstance(recorded.fact, kinds)]

    async def play(self, *, failing: bool = True) -> None:
        """Everything requested ends; if `failing` only what asks for the status of an order is won."""
        page = self.blobs.put(msgspec.msgpack.encode(Page(url="http://store/", title="Store", nodes=())))
        for request in await self.facts(EpisodeRequested):
            if request.episode in self.played:
                continue
            self.played.add(request.episode)
            lost = failing and request.task.family != "order_status"
            await self.tell(
                EpisodeStarted(episode=request.episode, actor="actor.1", instruction="", renderer=""),
                msgspec.structs.replace(bare_step(request.episode, 0), observation=page),
                ended(request),
                judged(request, won=not lost),
            )

    async def full_phase(self, *, failing: bool = True) -> None:
        """Play until the phase is full."""
        began = len(await self.facts(EpisodeJudged))
        while len(await self.facts(EpisodeJudged)) < began + PHASE:
            await self.decide()
            await self.play(failing=failing)

    async def until_second_phase(self) -> None:
        await self.tell(published(0))
        await self.full_phase()
        await self.tell(planned(0), published(1))

    async def copy(self, count: int) -> "Bench":
        """A run whose log holds the first `count` events of this one, under the names of their producers."""
        other = Bench(self.settings, valuer=None if self.valuer is None else Lengths())
        other.blobs = self.blobs
        recordeds = [recorded async for recorded in read(self.log)][:count]
        for recorded in recordeds:
            async with other.publisher("story") as publisher:
                await publisher.decide(recorded.fact, entity=recorded.envelope.entity)
        return other


def entity_of(fact: Any) -> str:
    """What a fact is about."""
    if isinstance(fact, TaskProposed):
        return fact.task.id
    return str(getattr(fact, "episode", getattr(fact, "task_id", "e")))


def ended(request: EpisodeRequested) -> EpisodeEnded:
    return EpisodeEnded(
        episode=request.episode,
        task_id=request.task.id,
        actor="actor.1",
        reason="done",
        steps=1,
        evidence=Evidence(answer=None, final_url="", probes={}),
        final_observation=None,
        policy_versions=(0, 0),
        duration_ms=1.0,
    )


def judged(request: EpisodeRequested, *, won: bool) -> EpisodeJudged:
    judgment = Judgment(outcome="success" if won else "failure", reward=float(won), reason="")
    return EpisodeJudged(episode=request.episode, task_id=request.task.id, judge=RULES, judgment=judgment)


def planned(batch: int) -> BatchPlanned:
    return BatchPlanned(
        batch=batch,
        algorithm="grpo",
        as_of=1,
        log_digest=b"",
        positions=b"",
        sample_digests=b"",
        minibatches=b"",
        episodes=(),
        consumed=(),
        seed=0,
        version=batch,
        reference_version=None,
        proximal_version=None,
        critic_version=None,
        config_digest="",
    )


def critic(version: int) -> WeightsPublished:
    return WeightsPublished(version=version, model="critic", weights=NOTHING, update=version)


async def state_of(bench: Bench) -> CurriculumState:
    projection = CurriculumProjection.under(bench.settings)
    state = projection.initial()
    async for recorded in read(bench.log):
        state = projection.apply(state, recorded)
    return state
