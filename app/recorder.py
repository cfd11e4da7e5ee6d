"""`hindcast record`: what a person does on a site becomes a demonstration in a run's log.

    browser ── Person ──> Episode, as an actor plays it ──> held until the person is done
                                                             │
    run's log <── episode.requested, episode.started, step.taken …, episode.ended

Nothing is appended before the end, so that a recording that was given up leaves nothing, and so that what the person reached
can be the check of a task that has none yet. Appended are the facts of a demonstrator's episode, each by the role whose
facts they are; no system may run meanwhile, whose actors would take the request.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from actors.answers import PersonAnswerer
from actors.environments.browser import BrowserHost
from actors.environments.web.definition import UNCHECKED, Check, WebTask
from actors.environments.web.evaluators import evaluate
from actors.environments.web.person import Person, PersonWorld, RecordingStopped, Watched
from actors.environments.web.site import WebSite
from actors.environments.web.tasks import as_task
from actors.environments.world import BrowserWorld
from actors.episode import Episode
from actors.recording import Ended, EpisodeRecord
from actors.scaffold.scaffold import scaffold_of
from actors.screenshots import Allowance, EpisodeScreenshots
from app.opening import open_log
from app.runs import RunHandle
from app.sites import login_states
from core.errors import EngineFailed, ExpectationFailed
from core.evidence import Evidence, Judgment
from core.models.folders import policy_folder
from core.models.policy import load_tokenizer
from core.observation import Page
from core.seeds import derive_id
from core.settings import Settings
from core.task import Task
from events.catalogue import EpisodeRequested, PhaseStarted, StepTaken, TaskAdmitted, TaskProposed
from events.codec import decode
from events.envelope import BlobRef, Fact
from events.joined import RunLog
from events.log import Expectation
from events.publisher import Publisher
from events.reader import read
from events.registry import BY_CLASS
from events.subjects import family_wildcard
from storage.blobs import BlobStore

NAME = "recorder"
"""Who records: `actor.recorder` plays the episode, by its facts."""
SOURCE = "recorded"
"""Where a task comes from that was written down with its demonstration."""


class Demonstrated(msgspec.Struct, frozen=True, kw_only=True):
    """What a person did, as the facts of an episode."""

    request: EpisodeRequested
    definition: WebTask
    instruction: str
    renderer: str
    steps: tuple[StepTaken, ...]
    ended: Ended
    judgment: Judgment
    """What the rules say of it."""
    blobs: dict[BlobRef, bytes]
    """Observations and screenshots."""


class _Held:
    """Keeps what an episode says, until it is known that it shall be said."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self.steps: list[StepTaken] = []
        self.kept: dict[BlobRef, bytes] = {}

    async def keep(self, page: Page) -> BlobRef:
        """See `EpisodeRecord`."""
        return await self.keep_image(msgspec.msgpack.encode(page))

    async def keep_image(self, content: bytes) -> BlobRef:
        """See `EpisodeRecord`."""
        ref = await asyncio.to_thread(self._store.put, content)
        self.kept[ref] = content
        return ref

    async def step(self, fact: StepTaken, *, newest_version: int) -> None:
        """See `EpisodeRecord`."""
        self.steps.append(fact)

    async def exceeded(self, *, setting: str, limit_s: float, waited_for: str) -> None:
        """See `EpisodeRecord`."""
        raise RecordingStopped(f"nothing was done for {limit_s:g} s (--patience); nothing is kept")

    async def suspected(self, *, index: int, excerpt: str) -> None:
        """See `EpisodeRecord`. A person has read the page, and acts as they think right: there is nothing to be said."""


async def play(
    definition: WebTask,
    *,
    number: int,
    derive_check: bool,
    settings: Settings,
    home: Path,
    headed: bool,
    patience_s: float,
    acting: Callable[[Person], Awaitable[None]],
    said: Callable[[str], None],
) -> Demonstrated:
    """Open the site, hear the person until they are done, and hold what they did.

    `number`: of the task in its family; `derive_check`: the task has no check, and gets what the person reached; `acting` runs
    beside, and ends the recording.

    Raises:
        RecordingStopped: nothing came of it.
        EnvironmentFailed, BrowserUnavailable: the site or the browser broke.

    """
    if derive_check:
        definition = msgspec.structs.replace(definition, checks=(UNCHECKED,))
    tokenizer = await asyncio.to_thread(load_tokenizer, policy_folder(settings.policy.base))
    actors = settings.actors.model_copy(update={"generate_timeout_s": patience_s})
    request = _request(as_task(definition, number), settings, lease_s=patience_s * definition.max_steps)
    site = WebSite(login_states(home))
    with TemporaryDirectory() as scratch:
        held = _Held(BlobStore(Path(scratch)))
        async with BrowserHost(actors, headed=headed) as host:
            watched = Watched(host)
            person = Person(watched, said=said)
            world = PersonWorld(BrowserWorld(watched, site, actors), person)
            try:
                began = time.monotonic()
                start = await world.reset(request.task)
                answerer = PersonAnswerer(
                    request,
                    person=person.next,
                    tokenizer=tokenizer,
                    settings=actors,
                    run_seed=settings.run.seed,
                    scaffold=scaffold_of(request.task, settings.scaffold, binding=False),
                )
                episode = Episode(
                    request,
                    world=world,
                    answerer=answerer,
                    record=held,
                    settings=actors,
                    screenshots=EpisodeScreenshots(
                        world, keep=held.keep_image, settings=actors, allowance=Allowance(actors)
                    ),
                )
                async with asyncio.TaskGroup() as tasks:
                    beside = tasks.create_task(_run(acting, person))
                    observe_ms = (time.monotonic() - began) * 1000
                    ended = await episode.play(start, observe_ms=observe_ms)
                    beside.cancel()
            finally:
                await world.close()
    if derive_check:
        definition = msgspec.structs.replace(definition, checks=(reached(ended.evidence),))
        request = msgspec.structs.replace(request, task=as_task(definition, number))
    return Demonstrated(
        request=request,
        definition=definition,
        instruction=start.instruction,
        renderer=actors.renderer,
        steps=tuple(held.steps),
        ended=ended,
        judgment=evaluate(request.task, ended.evidence),
        blobs=held.kept,
    )


async def _run(acting: Callable[[Person], Awaitable[None]], person: Person) -> None:
    await acting(person)


def reached(evidence: Evidence) -> Check:
    """What a person reached, as a check: the answer they gave, else the address they ended on."""
    if evidence.answer:
        return Check(of="answer", exact=evidence.answer)
    return Check(of="url", exact=evidence.final_url)


def _request(task: Task, settings: Settings, *, lease_s: float) -> EpisodeRequested:
    drawn = secrets.token_hex(8)  # a person may demonstrate a task more than once
    return EpisodeRequested(
        episode=derive_id("ep", settings.run.seed, SOURCE, task.id, drawn),
        task=task,
        group=derive_id("group", settings.run.seed, SOURCE, task.id, drawn),
        member=0,
        group_size=1,
        attempt=0,
        origin="demonstration",
        temperature=settings.actors.temperature,
        phase=0,
        min_version=0,
        lease_s=lease_s,
    )


async def append(handle: RunHandle, recorded: Demonstrated) -> int:
    """Append a recording to a run's log; returns the position of its last event.

    Raises:
        SettingsError, ForeignLog: the run cannot be gone on with.

    """
    async with handle.connect("reader"):  # the broker stays up for all of it
        await open_log(handle, None)
        for content in recorded.blobs.values():
            await asyncio.to_thread(handle.blobs.put, content)
        return await _append(handle, recorded)


async def _append(handle: RunHandle, recorded: Demonstrated) -> int:
    async with _writing(handle, "curriculum") as (log, publisher):
        request, causation = await _append_request(log, publisher, recorded.request)
    async with _writing(handle, "actor") as (log, publisher):
        record = EpisodeRecord(
            request, actor=f"actor.{NAME}", causation=causation, publisher=publisher, blobs=handle.blobs
        )
        assert await record.start(instruction=recorded.instruction, renderer=recorded.renderer)
        for step in recorded.steps:
            await record.step(step, newest_version=-1)
        assert await record.finish(recorded.ended)
        return (await log.identity()).last


async def _append_request(
    log: RunLog, publisher: Publisher, request: EpisodeRequested
) -> tuple[EpisodeRequested, str]:
    """Append the request, after the task where the run does not know it. Returns it with its phase, and its event's id."""
    phase, known, last = 0, False, {"curriculum": 0, "request": 0}
    async for recorded in read(log):
        fact = recorded.fact
        family = BY_CLASS[type(fact)].family
        if family in last:
            last[family] = recorded.position
        if isinstance(fact, PhaseStarted):
            phase = fact.phase
        elif isinstance(fact, TaskAdmitted):
            known = known or fact.task_id == request.task.id
    request = msgspec.structs.replace(request, phase=phase)

    async def decide(fact: Fact, entity: str) -> int:
        family = BY_CLASS[type(fact)].family
        expect = Expectation(subject=family_wildcard(log.run, family), last=last[family])
        try:
            last[family] = await publisher.decide(fact, entity=entity, correlation=entity, expect=expect)
        except ExpectationFailed as error:
            raise EngineFailed(
                f"somebody else requests episodes in run {log.run} at this moment; nothing was appended. Stop it, then record"
            ) from error
        return last[family]

    if not known:
        await decide(TaskProposed(task=request.task, source=SOURCE), request.task.id)
        await decide(TaskAdmitted(task_id=request.task.id, phase=phase), request.task.id)
    position = await decide(request, request.episode)
    (stored,) = await log.read(after=position - 1, limit=1)
    appended = decode(stored)
    assert appended is not None
    return request, appended.envelope.id


@asynccontextmanager
async def _writing(handle: RunHandle, role: str) -> AsyncIterator[tuple[RunLog, Publisher]]:
    async with (
        handle.connect_log(role) as log,
        Publisher(
            log, producer=f"{role}.{NAME}", code_rev=handle.code_rev, settings=handle.settings.log
        ) as publisher,
    ):
        yield log, publisher
