"""Holds demonstrated episodes outside of a running system, and appends them to a run's log once they are confirmed.

It appends the facts of a demonstrator's episode, each in the role that owns it: task and request as the curriculum, the
rest as an actor. No system may be running, because its actors would take the request. The run's judges judge the episode at
the next start. An episode that an interrupted `append` left open is abandoned, then appended again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from hindcast.actors.episodes.recorder import Abandoned, Ended, EpisodeRecord
from hindcast.app.runs.open_log import open_log
from hindcast.app.runs.runs import RunHandle
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.domain.evidence import Judgment
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import EngineFailed, ExpectationFailed
from hindcast.core.ids import digest_hex
from hindcast.core.seeds import derive_id
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    PhaseStarted,
    StepTaken,
    TaskAdmitted,
    TaskProposed,
)
from hindcast.events.codec import decode
from hindcast.events.envelope import BlobRef, Fact, Recorded
from hindcast.events.log.joined_log import RunLog
from hindcast.events.log.port import Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import family_wildcard


class DemonstratedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """A demonstration as the facts of an episode."""

    request: EpisodeRequested
    instruction: str
    renderer: str
    steps: tuple[StepTaken, ...]
    ended: Ended | Abandoned
    """Abandoned: it failed where it was recorded."""
    judgment: Judgment
    """Verdict of the rules."""
    blobs: dict[BlobRef, bytes]
    """Observations and screenshots."""


class PendingEpisode:
    """Holds an episode's facts and blobs until it is confirmed. Implements `actors.episodes.recorder.StepRecord`."""

    def __init__(self, *, on_wait: Callable[[float], None]) -> None:
        """`on_wait` is called with the limit in seconds when a wait exceeds it, and raises."""
        self._on_wait = on_wait
        self.steps: list[StepTaken] = []
        self.kept: dict[BlobRef, bytes] = {}

    async def keep(self, page: Page) -> BlobRef:
        """See `StepRecord`."""
        return await self.keep_image(msgspec.msgpack.encode(page))

    async def keep_image(self, content: bytes) -> BlobRef:
        """See `StepRecord`."""
        ref = BlobRef(digest_hex(content), len(content))
        self.kept[ref] = content
        return ref

    async def step(self, fact: StepTaken, *, newest_version: int) -> None:
        """See `StepRecord`."""
        self.steps.append(fact)

    async def exceeded(self, *, setting: str, limit_s: float, waited_for: str) -> None:
        """See `StepRecord`."""
        self._on_wait(limit_s)

    async def suspected(self, *, index: int, excerpt: str) -> None:
        """See `StepRecord`. Records nothing: the demonstrator has read the page and decides."""


def request_for(
    task: Task, settings: Settings, *, source: str, drawn: str, lease_s: float, attempt: int = 0
) -> EpisodeRequested:
    """Build the request of a demonstration; `drawn` distinguishes it from others of the same task."""
    names = (settings.run.seed, source, task.id, drawn)
    return EpisodeRequested(
        episode=derive_id("ep", *names, *((attempt,) if attempt else ())),
        task=task,
        group=derive_id("group", *names),
        member=0,
        group_size=1,
        attempt=attempt,
        origin="demonstration",
        temperature=settings.actors.temperature,
        phase=0,
        min_version=0,
        lease_s=lease_s,
    )


class UnfinishedDemonstration(msgspec.Struct):
    """A demonstration without an end."""

    request: EpisodeRequested
    event: str
    """Id of the request's event."""
    steps: int = 0
    """Steps recorded so far."""


class AppendState(msgspec.Struct):
    """State that an append needs, folded from the log."""

    phase: int = 0
    tasks: set[str] = msgspec.field(default_factory=set)
    """Admitted tasks."""
    open: dict[str, UnfinishedDemonstration] = msgspec.field(default_factory=dict)
    """Open demonstrations by episode."""
    ended: set[str] = msgspec.field(default_factory=set)
    """Ended demonstrations."""
    gone: set[str] = msgspec.field(default_factory=set)
    """Abandoned demonstrations."""
    last: dict[str, int] = msgspec.field(default_factory=lambda: {"curriculum": 0, "request": 0})
    """Position of the last event of each family."""

    def apply(self, recorded: Recorded) -> None:
        """Take in the next event."""
        fact = recorded.fact
        family = BY_CLASS[type(fact)].family
        if family in self.last:
            self.last[family] = recorded.position
        match fact:
            case PhaseStarted():
                self.phase = fact.phase
            case TaskAdmitted():
                self.tasks.add(fact.task_id)
            case EpisodeRequested(origin="demonstration" | "imported"):
                self.open[fact.episode] = UnfinishedDemonstration(fact, recorded.envelope.id)
            case StepTaken() if fact.episode in self.open:
                self.open[fact.episode].steps += 1
            case EpisodeEnded() if self.open.pop(fact.episode, None) is not None:
                self.ended.add(fact.episode)
            case EpisodeAbandoned() | EpisodeCancelled() if self.open.pop(fact.episode, None) is not None:
                self.gone.add(fact.episode)
            case _:
                pass


class Appender:
    """Appends demonstrations to one run. `appending` creates it."""

    def __init__(
        self,
        handle: RunHandle,
        log: RunLog,
        standing: AppendState,
        *,
        source: str,
        requests: Publisher,
        plays: Publisher,
        actor: str,
    ) -> None:
        self._handle = handle
        self._log = log
        self._source = source
        self._requests = requests
        self._plays = plays
        self._actor = actor
        self.standing = standing

    async def append(self, shown: DemonstratedEpisode) -> int:
        """Append a demonstration; returns the position of its last event. Raises EngineFailed if another process requests episodes."""
        for content in shown.blobs.values():
            await asyncio.to_thread(self._handle.blobs.put, content)
        standing = self.standing
        request = msgspec.structs.replace(shown.request, phase=standing.phase)
        if request.task.id not in standing.tasks:
            await self._decide(TaskProposed(task=request.task, source=self._source), request.task.id)
            await self._decide(TaskAdmitted(task_id=request.task.id, phase=standing.phase), request.task.id)
            standing.tasks.add(request.task.id)
        position = await self._decide(request, request.episode)
        (stored,) = await self._log.read(after=position - 1, limit=1)
        appended = decode(stored)
        assert appended is not None
        record = self._record(request, causation=appended.envelope.id)
        assert await record.start(instruction=shown.instruction, renderer=shown.renderer)
        for step in shown.steps:
            await record.step(step, newest_version=max(unpack_ids(step.versions).tolist(), default=-1))
        assert await record.finish(shown.ended)
        done = standing.gone if isinstance(shown.ended, Abandoned) else standing.ended
        done.add(request.episode)
        return (await self._log.identity()).last

    async def give_up(self, episode: str) -> None:
        """Abandon an episode that an interrupted append left open."""
        left = self.standing.open.pop(episode)
        record = self._record(left.request, causation=left.event)
        gone = Abandoned(reason="actor_stopped", detail="interrupted while it was appended", steps=left.steps)
        assert await record.finish(gone)
        self.standing.gone.add(episode)

    def _record(self, request: EpisodeRequested, *, causation: str) -> EpisodeRecord:
        return EpisodeRecord(
            request,
            actor=self._actor,
            causation=causation,
            publisher=self._plays,
            blobs=self._handle.blobs,
        )

    async def _decide(self, fact: Fact, entity: str) -> int:
        last = self.standing.last
        family = BY_CLASS[type(fact)].family
        expect = Expectation(subject=family_wildcard(self._log.run, family), last=last[family])
        try:
            last[family] = await self._requests.decide(fact, entity=entity, correlation=entity, expect=expect)
        except ExpectationFailed as error:
            raise EngineFailed(
                f"another process requests episodes in run {self._log.run}; what was appended stays, and nothing more "
                "was appended. Stop that process, then run the same command again"
            ) from error
        return last[family]


@asynccontextmanager
async def appending(handle: RunHandle, *, name: str, source: str) -> AsyncIterator[Appender]:
    """Open a run to append demonstrations. `name`: last part of the producer's name; `source`: source of new tasks.

    Raises:
        SettingsError, ForeignLog: the run cannot be resumed.

    """
    async with handle.connect("reader"):  # keeps the broker running until the end
        await open_log(handle, None)
        async with (
            handle.connect_log("curriculum") as log,
            _publisher(handle, log, f"curriculum.{name}") as requests,
            handle.connect_log("actor") as played,
            _publisher(handle, played, f"actor.{name}") as plays,
        ):
            standing = AppendState()
            async for recorded in read(log):
                standing.apply(recorded)
            yield Appender(
                handle,
                log,
                standing,
                source=source,
                requests=requests,
                plays=plays,
                actor=f"actor.{name}",
            )


def _publisher(handle: RunHandle, log: RunLog, producer: str) -> Publisher:
    return Publisher(log, producer=producer, code_rev=handle.code_rev, settings=handle.settings.log)
