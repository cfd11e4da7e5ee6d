"""The judge's process: every episode that ended gets one verdict from each configured judge.

    episode.ended ── work queue ──> workers ── Judge, Reader ──> episode.judged     (created if absent)
    episode.requested ── follow ──> TaskMemory ──┘       │
    weights.published ── follow ──> Shelf ───────────────┘

Consumes the ends of episodes; waits for one (`FETCH_S`), for its task (`log.append_timeout_s` without progress) and
for each judgment (`judge.timeout_s`); produces episode.judged and wait.exceeded, and acknowledges an end behind its
verdicts. Abandoned and cancelled episodes get none.

Invariant "Verdicts are facts about a judge": a redelivered end finds its verdict there and changes nothing. An end that
is handed out for the last time is given `undecided` without being looked at: whatever killed the judge over it before
must not leave its whole group waiting.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import structlog
from structlog.contextvars import bound_contextvars

from actors.judge.base import (
    AnyJudge,
    Opinion,
    OutOfTime,
    Reader,
    reach_judgment,
    reach_opinion,
    too_slow,
    undecided,
    verdict_key,
)
from actors.judge.judges import JUDGES
from actors.judge.shelf import Shelf
from actors.judge.tasks import TaskMemory
from actors.spans import judged, judging
from core.errors import BrokerUnreachable, ExpectationFailed, SettingsError
from core.evidence import Judgment
from core.settings import Settings
from core.task import Task
from events.catalogue import EpisodeEnded, EpisodeJudged, WaitExceeded
from events.envelope import Recorded
from events.log import EventLog
from events.publisher import Publisher
from events.queue import MAX_TRIES, Delivery, WorkQueue
from events.subjects import subject_of

FETCH_S = 2.0
"""How long one look at the work queue waits; also how long `stop` waits for an idle worker."""
WORKERS = 4
"""Episodes judged at the same time: one that hangs does not hold up the others."""

logger = structlog.get_logger(__name__)


async def run_judge(
    *,
    log: EventLog,
    publisher: Publisher,
    queue: WorkQueue,
    settings: Settings,
    stop: asyncio.Event,
    judges: Mapping[str, AnyJudge] = JUDGES,
    shelf: Shelf | None = None,
) -> None:
    """Judge until `stop` is set. `queue` delivers the family `episode_end`.

    `shelf`: where the judge comes from that the run itself trains; None: the run has none.

    Raises:
        SettingsError: `judge.judges` names one that does not exist.
        HindcastError: the log cannot be used any more; wrapped in an exception group.

    """
    known = dict(judges)
    if shelf is not None:
        known[shelf.name] = await shelf.begin(log)
    role = _JudgeRole(log, publisher, queue, settings, configured_judges(settings, known), stop)
    async with asyncio.TaskGroup() as background:
        following = [background.create_task(role.tasks.follow())]
        if shelf is not None:
            following.append(background.create_task(shelf.follow(log, role.replace)))
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(role.work(), name=f"judge {number}")
        for task in following:
            task.cancel()
    await publisher.commit()
    logger.info("judge stopped", **role.counts)


def configured_judges(settings: Settings, judges: Mapping[str, AnyJudge]) -> list[AnyJudge]:
    """The judges of the settings, in their order.

    Raises:
        SettingsError: there is none, or one is unknown.

    """
    for name in settings.judge.judges:
        if name not in judges:
            raise SettingsError(f"judge.judges names {name!r}; there are: {', '.join(sorted(judges))}")
    if not settings.judge.judges:
        raise SettingsError(
            f"judge.judges is empty: nothing could be trained on. There are: {', '.join(sorted(judges))}"
        )
    return [judges[name] for name in settings.judge.judges]


class _JudgeRole:
    """Workers and what they share."""

    def __init__(
        self,
        log: EventLog,
        publisher: Publisher,
        queue: WorkQueue,
        settings: Settings,
        judges: Sequence[AnyJudge],
        stop: asyncio.Event,
    ) -> None:
        self._log = log
        self._publisher = publisher
        self._queue = queue
        self._settings = settings
        self._judges = list(judges)
        self._stop = stop
        self.tasks = TaskMemory(log)
        self.counts: Counter[str] = Counter()
        """Verdicts by outcome, and `repeated` ones that were there already."""

    def replace(self, judge: AnyJudge) -> None:
        """From the next episode on another version of a judge speaks."""
        names = [known.identity.name for known in self._judges]
        self._judges[names.index(judge.identity.name)] = judge

    async def work(self) -> None:
        """One end after the other until `stop`."""
        while not self._stop.is_set():
            for delivery in await self._queue.fetch(1, wait_s=FETCH_S):
                await self._handle(delivery)

    async def _handle(self, delivery: Delivery) -> None:
        ended = delivery.recorded.fact
        if isinstance(ended, EpisodeEnded):
            for judge in tuple(self._judges):
                await delivery.in_progress()
                with bound_contextvars(episode=ended.episode, position=delivery.recorded.position):
                    await self._judge(judge, delivery, ended)
        await delivery.ack()

    async def _judge(self, judge: AnyJudge, delivery: Delivery, ended: EpisodeEnded) -> None:
        entity = verdict_key(ended.episode, judge.identity)
        if await self._log.last_under(subject_of(self._log.run, EpisodeJudged, key=entity)) is not None:
            self.counts["repeated"] += 1
            return
        with judging(ended.episode, judge.identity, delivery) as begun:
            judgment = await self._decide(judge, delivery, ended, entity=entity)
            judged(begun, judge.identity, judgment, content=self._settings.telemetry.content)

    async def _decide(
        self, judge: AnyJudge, delivery: Delivery, ended: EpisodeEnded, *, entity: str
    ) -> Judgment:
        recorded, tries = delivery.recorded, delivery.tries
        if tries >= MAX_TRIES:
            opinion = Opinion(judgment=undecided(f"{tries - 1} tries to judge this episode came to nothing"))
        else:
            opinion = await self._opinion(judge, recorded, ended)
        judgment = opinion.judgment
        fact = EpisodeJudged(
            episode=ended.episode,
            task_id=ended.task_id,
            judge=judge.identity,
            judgment=judgment,
            reading=opinion.reading,
        )
        try:
            await self._publisher.decide(
                fact, entity=entity, causation=recorded.envelope.id, correlation=ended.episode
            )
        except ExpectationFailed:
            self.counts["repeated"] += 1
        else:
            self.counts[judgment.outcome] += 1
        return judgment

    async def _opinion(self, judge: AnyJudge, recorded: Recorded, ended: EpisodeEnded) -> Opinion:
        timeout_s = self._settings.judge.timeout_s
        try:
            if isinstance(judge, Reader):
                story = await judge.story_of(self._log, ended, before=recorded.position)
                return await reach_opinion(judge, story, timeout_s=timeout_s)
            task = await self._task(recorded, ended)
            judgment = await reach_judgment(judge, task, ended.evidence, timeout_s=timeout_s)
            return Opinion(judgment=judgment)
        except OutOfTime:
            await self._publisher.publish(
                WaitExceeded(
                    setting="judge.timeout_s",
                    limit_s=timeout_s,
                    waited_for=f"the verdict of {judge.identity.name} on {ended.episode}",
                ),
                entity=ended.episode,
                causation=recorded.envelope.id,
                correlation=ended.episode,
            )
            return Opinion(judgment=too_slow(judge, timeout_s))

    async def _task(self, recorded: Recorded, ended: EpisodeEnded) -> Task | None:
        stalled_s = self._settings.log.append_timeout_s
        try:
            return await self.tasks.find(ended.task_id, known_before=recorded.position, stalled_s=stalled_s)
        except TimeoutError:
            raise BrokerUnreachable(
                f"requests are known up to position {self.tasks.position}, and nothing came for {stalled_s:g} s "
                f"(log.append_timeout_s), though the log goes on to {recorded.position}. Run: hindcast doctor"
            ) from None
