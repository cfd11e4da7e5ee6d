"""The worker of the roles that record facts about the events of a queue: judge and relabeler.

    queue ──> QueueWorker ──> handler.jobs(event) ──> job.run ──> fact, appended once ──> delivery acknowledged
                                  concurrently: coroutines that follow the log for the handler

It waits for a delivery (`FETCH_S`). A job is not run again if any version of
its judge or relabeler has recorded its fact. A job that may succeed later is
run again at a later delivery, after a growing pause (`OUTAGE_PAUSES_S`); its last attempt is recorded as it is. The last
delivery is not worked on, so that an event that kills its worker each time does not wait forever. A delivery is
acknowledged once its facts are durable.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import structlog
from opentelemetry.trace import Span
from structlog.contextvars import bound_contextvars

from hindcast.core.errors import ExpectationFailed
from hindcast.events.catalogue import WaitExceeded
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import ACK_WAIT_S, MAX_TRIES, Delivery, WorkQueue
from hindcast.events.subjects import subject_of

FETCH_S = 2.0
"""How long one fetch from the work queue waits; also how long `stop` waits for an idle worker."""
WORKERS = 4
"""Concurrent deliveries: one that hangs does not block the others."""
LAST_ASKED = MAX_TRIES - 1
"""The delivery at which a failure to ask is recorded, with its reason; the last one is not processed."""
OUTAGE_PAUSES_S = (15.0, 30.0, 60.0)
"""Pauses before redelivery while a judge's or relabeler's model is unreachable: a server restart, or a provider's short
outage, takes a minute or two.
"""
KEEP_S = ACK_WAIT_S / 3
"""How often a delivery that is worked on is reported as in progress."""

logger = structlog.get_logger(__name__)


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job: an event to record, and whether the job is to be tried again."""

    fact: Fact | None
    """None: there is nothing to record."""
    label: str = ""
    """Name of the counter that the recorded event adds to."""
    retry: str = ""
    """Why a later attempt may lead to another fact; empty: it would not."""


class QueueJob(ABC):
    """One fact that a delivery leads to."""

    def __init__(self, kind: type[Fact], *, episode: str, author: JudgeIdentity) -> None:
        """`author`: the judge or relabeler."""
        self.kind = kind
        self.episode = episode
        self.author = author

    @abstractmethod
    async def run(self, delivery: Delivery) -> JobResult:
        """Work on an event; at its last delivery (`is_last`), give it up without working on it."""

    @abstractmethod
    def span(self, delivery: Delivery) -> AbstractContextManager[Span]:
        """The telemetry span around the job."""

    @abstractmethod
    def describe(self, open_span: Span, fact: Fact) -> None:
        """Describe what is recorded on the span."""


class QueueHandler(ABC):
    """Says which facts an event of the queue leads to."""

    @abstractmethod
    def jobs(self, recorded: Recorded) -> Sequence[QueueJob]:
        """The jobs of an event; none: it is acknowledged at once."""

    def following(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Coroutines that run as long as the workers."""
        return ()

    def forget(self, recorded: Recorded) -> None:
        """Drop what is kept for an event: its facts are durable."""
        del recorded


class QueueWorker:
    """Works on the deliveries of one queue, several at the same time."""

    def __init__(
        self, handler: QueueHandler, queue: WorkQueue, *, log: EventLog, publisher: Publisher, name: str
    ) -> None:
        self._handler = handler
        self._queue = queue
        self._log = log
        self._publisher = publisher
        self._name = name
        self.counts: Counter[str] = Counter()
        """Facts by label, postponed jobs (`later`), and jobs whose fact existed already (`repeated`)."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; what is begun is finished.

        Raises:
            HindcastError: the log is unusable; wrapped in an exception group.
        """
        async with asyncio.TaskGroup() as background:
            following = [background.create_task(coroutine) for coroutine in self._handler.following()]
            async with asyncio.TaskGroup() as workers:
                for number in range(WORKERS):
                    workers.create_task(self._work(stop, background), name=f"{self._name} {number}")
            for task in following:
                task.cancel()
        await self._publisher.commit()
        logger.info(f"{self._name} stopped", **self.counts)

    async def _work(self, stop: asyncio.Event, background: asyncio.TaskGroup) -> None:
        while not stop.is_set():
            for delivery in await self._queue.fetch(1, wait_s=FETCH_S):
                keeping = background.create_task(_keep(delivery))
                try:
                    await self._handle(delivery)
                finally:
                    keeping.cancel()

    async def _handle(self, delivery: Delivery) -> None:
        recorded, later = delivery.recorded, False
        for job in self._handler.jobs(recorded):
            await delivery.in_progress()
            with bound_contextvars(episode=job.episode, position=recorded.position):
                later |= not await self._is_done(job, delivery)
        if later:
            await delivery.retry(OUTAGE_PAUSES_S[min(delivery.tries, len(OUTAGE_PAUSES_S)) - 1])
        else:
            self._handler.forget(recorded)
            await delivery.ack()

    async def _is_done(self, job: QueueJob, delivery: Delivery) -> bool:
        """Do a job. False: it is to be tried again at a later delivery."""
        any_version = f"{job.episode}.{_subject_token(job.author.name)}.>"
        if await self._log.last_under(subject_of(self._log.run, job.kind, key=any_version)) is not None:
            self.counts["repeated"] += 1
            return True
        with job.span(delivery) as open_span:
            result = await job.run(delivery)
            if result.retry and delivery.tries < LAST_ASKED:
                self.counts["later"] += 1
                logger.warning("put off", author=job.author.name, reason=result.retry, tries=delivery.tries)
                return False
            if result.fact is not None:
                job.describe(open_span, result.fact)
                is_new = await append_once(
                    self._publisher,
                    result.fact,
                    entity=author_key(job.episode, job.author),
                    causation=delivery.recorded.envelope.id,
                    episode=job.episode,
                )
                self.counts[result.label if is_new else "repeated"] += 1
        return True


def author_key(episode: str, author: JudgeIdentity) -> str:
    """The entity of a verdict or of relabels: its subject holds at most one."""
    return f"{episode}.{_subject_token(author.name)}.{author.version}"


def _subject_token(name: str) -> str:
    """A name as one token of a subject; dots, as in `module:object`, and wildcards become `%2E` and the like."""
    return re.sub(
        r"[^A-Za-z0-9_-]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), name
    )


def is_last(delivery: Delivery) -> bool:
    """Whether it is the last delivery of an event, after tries that came to nothing."""
    return delivery.tries >= MAX_TRIES


async def _keep(delivery: Delivery) -> None:
    """Report a delivery as in progress forever, so that the queue does not redeliver it."""
    while True:
        await asyncio.sleep(KEEP_S)
        await delivery.in_progress()


async def append_once(publisher: Publisher, fact: Fact, *, entity: str, causation: str, episode: str) -> bool:
    """Append an event that is created if absent; False when it exists already."""
    try:
        await publisher.decide(fact, entity=entity, causation=causation, correlation=episode)
    except ExpectationFailed:
        return False
    return True


async def report_wait(
    publisher: Publisher, delivery: Delivery, *, episode: str, setting: str, limit_s: float, waited_for: str
) -> None:
    """Record that a job exceeded a time limit of the settings."""
    await publisher.publish(
        WaitExceeded(setting=setting, limit_s=limit_s, waited_for=waited_for),
        entity=episode,
        causation=delivery.recorded.envelope.id,
        correlation=episode,
    )
