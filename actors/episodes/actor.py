"""The actor process: one browser, one policy engine, many episodes at a time.

    episode.requested ── work queue ──> N workers ── Attempt ──> episode.started, step.taken …, episode.ended
    weights.published ── follow ──────> engine ────────────────> weights.adopted

Each worker consumes requests. It waits for a request (`FETCH_S`), for the policy version that the request needs
(`actors.generate_timeout_s`) and for the episode (`actors.episode_timeout_s`). It appends exactly one terminal event
per episode that it started, and acknowledges the request afterwards.

Invariant "Every episode ends once", crash-only: an actor that dies leaves started episodes without an end. No actor
plays them again: a redelivered request finds its episode started and is dropped. When the same actor starts again, it
abandons the episodes of its earlier process (`actor_restarted`). If it never starts again, their leases expire. The
first terminal event wins, because it is created only if absent. A retry is a new episode.

While the run is paused (`actors.curriculum.leases`), no episode begins; running episodes are played to their end.

On `stop`, running episodes are abandoned as `actor_stopped`. A request that was fetched but not begun returns to the
queue.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing

import structlog
from structlog.contextvars import bound_contextvars

from hindcast.actors.curriculum.leases import FAMILIES as LEASE_FAMILIES
from hindcast.actors.curriculum.leases import LeaseBook, Pauses
from hindcast.actors.curriculum.snapshots import curriculum_kind
from hindcast.actors.engines.base import PolicyEngine
from hindcast.actors.environments.base import Demonstrate, Venue
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.actors.episodes.attempt import Attempt, AttemptContext, WorldHost
from hindcast.actors.episodes.recorder import Abandoned, Ended, EpisodeRecord, decide_if_absent
from hindcast.actors.episodes.weight_adoption import Adoption, newest_policy
from hindcast.actors.log_follower import follow, read_families
from hindcast.actors.telemetry.spans import played, playing
from hindcast.core.errors import BrowserUnavailable, EngineFailed
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
)
from hindcast.events.codec import EventTooLarge, decode
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import Delivery, WorkQueue
from hindcast.events.subjects import subject_of
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.snapshots import newest_standing

FETCH_S = 2.0
"""How long one fetch from the work queue waits; also how long `stop` waits for an idle worker."""
HEARTBEAT_S = 15.0
"""How often a worker reports a request as in progress to the queue; the queue redelivers after 60 s of silence."""
PAUSE_S = 0.5
"""Pause of a worker after an episode that the browser, engine or site broke; doubles with each one in a row."""
LONGEST_PAUSE_S = 30.0
"""Upper bound of the pause. Without a pause, a broken browser uses up every attempt of every episode in seconds."""
BROKEN_ROUNDS = 3
"""After this many broken episodes per context in a row, the actor process ends and is restarted."""
FATAL_IN_A_ROW = {"browser_died": BrowserUnavailable, "engine_failed": EngineFailed}

logger = structlog.get_logger(__name__)


async def run_actor(
    *,
    name: str,
    log: EventLog,
    publisher: Publisher,
    queue: WorkQueue,
    engine: PolicyEngine,
    host: WorldHost,
    sites: Mapping[str, Venue],
    blobs: BlobStore,
    settings: Settings,
    stop: asyncio.Event,
    demonstrators: Mapping[tuple[str, str], Demonstrate] = DEMONSTRATORS,
) -> None:
    """Play requested episodes until `stop` is set. `name` identifies this actor, such as `actor.1`, also after a restart.

    `queue` delivers episode.requested. `engine` holds a version that the run knows. `sites` maps environment to site.

    Raises:
        HindcastError: the log or the weights are unusable; wrapped in an exception group.
    """
    adoption = Adoption(actor=name, engine=engine, publisher=publisher, blobs=blobs)
    position, pauses = await _take_over(
        name, log=log, publisher=publisher, blobs=blobs, settings=settings, adoption=adoption
    )
    stage = AttemptContext(
        host=host,
        sites=sites,
        engine=engine,
        adoption=adoption,
        demonstrators=demonstrators,
        settings=settings,
        log=log,
    )
    actor = _Actor(
        name, log=log, publisher=publisher, queue=queue, blobs=blobs, stage=stage, pauses=pauses, stop=stop
    )
    async with asyncio.TaskGroup() as background:
        tasks = [
            background.create_task(_follow(log, adoption, pauses, after=position)),
            background.create_task(actor.report_progress()),
            background.create_task(actor.stop_when_told()),
        ]
        async with asyncio.TaskGroup() as workers:
            for number in range(settings.actors.contexts):
                workers.create_task(actor.work(), name=f"{name} context {number}")
        for task in tasks:
            task.cancel()
    await publisher.commit()
    logger.info("actor stopped", actor=name, **actor.counts)


async def _take_over(
    name: str,
    *,
    log: EventLog,
    publisher: Publisher,
    blobs: BlobStore,
    settings: Settings,
    adoption: Adoption,
) -> tuple[int, Pauses]:
    """Bring the engine up to date and abandon episodes of an earlier process; returns the position and the pauses there.

    The curriculum's newest snapshot holds the open episodes at its position, and the newest weights.
    """
    leases = LeaseBook()
    published: Recorded | None = None
    position = 0
    if (standing := await newest_standing(log, blobs, curriculum_kind(settings))) is not None:
        position, leases = standing.state.position, standing.state.leases
        published = await _event_at(log, standing.state.published)
    families = LEASE_FAMILIES | {"learner"}
    async with aclosing(read_families(log, after=position, families=families)) as batches:
        async for followed in batches:
            position = followed.position
            for recorded in followed.recorded:
                leases.apply(recorded)
            published = newest_policy(followed.recorded, than=published)
    for lease in leases.started_by(name):
        fact = EpisodeAbandoned(
            episode=lease.episode,
            task_id=lease.task_id,
            reason="actor_restarted",
            detail=f"{name} was started again while it played this episode",
            steps=lease.steps,
        )
        await decide_if_absent(publisher, fact, causation=lease.causation)
    await adoption.begin()
    await adoption.take(published)
    return position, leases.pauses


async def _event_at(log: EventLog, position: int) -> Recorded | None:
    events = await log.read(after=position - 1, limit=1) if position else []
    return decode(events[0]) if events else None


async def _follow(log: EventLog, adoption: Adoption, pauses: Pauses, *, after: int) -> None:
    async with aclosing(follow(log, after=after, families={"learner", "control"})) as batches:
        async for followed in batches:
            for recorded in followed.recorded:
                pauses.apply(recorded)
            await adoption.take(newest_policy(followed.recorded))


class _Actor:
    """The workers of an actor and their shared state."""

    def __init__(
        self,
        name: str,
        *,
        log: EventLog,
        publisher: Publisher,
        queue: WorkQueue,
        blobs: BlobStore,
        stage: AttemptContext,
        pauses: Pauses,
        stop: asyncio.Event,
    ) -> None:
        self._name = name
        self._log = log
        self._publisher = publisher
        self._queue = queue
        self._blobs = blobs
        self._stage = stage
        self._pauses = pauses
        self._stop = stop
        self._in_hand: set[Delivery] = set()
        """Deliveries in progress. A request is in it twice when it is redelivered before it was begun."""
        self._broken_in_a_row = 0
        self.counts: Counter[str] = Counter()
        """Episodes by outcome: `ended`, `abandoned`, `late` (already had a terminal event), `skipped` (taken elsewhere)."""

    async def stop_when_told(self) -> None:
        """End running attempts once `stop` is set."""
        await self._stop.wait()
        self._stage.stop()

    async def report_progress(self) -> None:
        """Report the deliveries in progress to the queue, forever."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for delivery in list(self._in_hand):
                await delivery.in_progress()

    async def work(self) -> None:
        """Play one episode after another in one context until `stop`."""
        broken = 0
        while not self._stop.is_set():
            if self._pauses:
                await self._pause(FETCH_S)
                continue
            for delivery in await self._queue.fetch(1, wait_s=FETCH_S):
                if self._stop.is_set() or self._pauses:
                    await delivery.retry(0.0)
                    break
                outcome = await self._handle(delivery)
                broken = broken + 1 if _is_broken(outcome) else 0
                self._give_up_if_broken(outcome)
            if broken:
                await self._pause(min(LONGEST_PAUSE_S, PAUSE_S * 2 ** (broken - 1)))

    async def _handle(self, delivery: Delivery) -> Ended | Abandoned | None:
        request = delivery.recorded.fact
        if not isinstance(request, EpisodeRequested) or await self._is_taken(request.episode):
            self.counts["skipped"] += 1
            await delivery.ack()
            return None
        record = EpisodeRecord(
            request,
            actor=self._name,
            causation=delivery.recorded.envelope.id,
            publisher=self._publisher,
            blobs=self._blobs,
        )
        attempt = Attempt(request, stage=self._stage, record=record)
        self._in_hand.add(delivery)
        try:
            with (
                bound_contextvars(episode=request.episode, position=delivery.recorded.position),
                playing(request, delivery, run=self._log.run) as open_span,
            ):
                outcome = await attempt.run()
                await self._finish(outcome, record)
                played(open_span, outcome)
        finally:
            self._in_hand.discard(delivery)
            await attempt.close()
        await delivery.ack()
        return outcome

    async def _finish(self, outcome: Ended | Abandoned | None, record: EpisodeRecord) -> None:
        if outcome is None:
            self.counts["skipped"] += 1
        elif not await self._record_end(outcome, record):
            self.counts["late"] += 1
            logger.warning("an end came too late: the episode has one already", outcome=outcome.reason)
        else:
            self.counts["ended" if isinstance(outcome, Ended) else "abandoned"] += 1

    async def _record_end(self, outcome: Ended | Abandoned, record: EpisodeRecord) -> bool:
        """Append the end; False if the episode has one. Evidence too large for an event ends the episode as abandoned."""
        try:
            return await record.finish(outcome)
        except EventTooLarge as error:
            return await record.finish(Abandoned(reason="error", detail=str(error), steps=outcome.steps))

    async def _is_taken(self, episode: str) -> bool:
        """Whether the episode has a start or a terminal event; some episodes end without ever being started."""
        for cls in (EpisodeStarted, EpisodeEnded):
            if await self._log.last_under(subject_of(self._log.run, cls, key=episode)) is not None:
                return True
        return False

    def _give_up_if_broken(self, outcome: Ended | Abandoned | None) -> None:
        """Raise once so many episodes in a row broke; the process restarts with a new browser and engine."""
        if isinstance(outcome, Ended):
            self._broken_in_a_row = 0
        if not isinstance(outcome, Abandoned) or outcome.reason not in FATAL_IN_A_ROW:
            return
        self._broken_in_a_row += 1
        if self._broken_in_a_row >= BROKEN_ROUNDS * self._stage.settings.actors.contexts:
            raise FATAL_IN_A_ROW[outcome.reason](
                f"{self._name} abandoned {self._broken_in_a_row} episodes in a row; the last one: {outcome.detail}"
            )

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._stop.wait()
        except TimeoutError:
            return


def _is_broken(outcome: Ended | Abandoned | None) -> bool:
    """Whether the next episode is likely to break too."""
    return isinstance(outcome, Abandoned) and outcome.reason != "episode_timeout"
