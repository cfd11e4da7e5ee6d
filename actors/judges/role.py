"""The judge process: every ended episode gets one verdict from each configured judge.

    episode.ended ── work queue ──> workers ── Judge ──> episode.judged     (created if absent)
    episode.requested ── follow ──> TaskMemory ──┘ │
    weights.published ── follow ──> JudgeVersions ─┘

It consumes the ends of episodes. It waits for an end (`FETCH_S`), for its task (`log.append_timeout_s` without progress)
and for each judgment (`judge.timeout_s`). It appends episode.judged and wait.exceeded, and acknowledges an end after its
verdicts. Abandoned and cancelled episodes get none.

Invariant "Verdicts are facts about a judge": a redelivered end finds its verdict and changes nothing. The last delivery
of an end gives `undecided` without judging: an episode that crashes the judge must not block its whole group. An end
whose model is unreachable is redelivered, with growing pauses.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import structlog
from structlog.contextvars import bound_contextvars

from hindcast.actors.judges.base import (
    AnyJudge,
    EpisodeModelJudge,
    EvidenceModelJudge,
    JudgeTimeout,
    Opinion,
    reach_answer,
    reach_judgment,
    reach_opinion,
    too_slow,
    undecided,
    verdict_key,
)
from hindcast.actors.judges.task_memory import TaskMemory
from hindcast.actors.judges.trained_judges import JudgeVersions
from hindcast.actors.queue_worker import LAST_ASKED, append_once, exists, outage_pause_s, run_queue_worker
from hindcast.actors.telemetry.spans import judged, judging
from hindcast.core.domain.evidence import Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue import EpisodeEnded, EpisodeJudged, WaitExceeded
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import MAX_TRIES, Delivery, WorkQueue

logger = structlog.get_logger(__name__)


async def run_judge(
    *,
    log: EventLog,
    publisher: Publisher,
    queue: WorkQueue,
    settings: Settings,
    stop: asyncio.Event,
    judges: Mapping[str, AnyJudge],
    shelf: JudgeVersions | None = None,
) -> None:
    """Judge until `stop` is set. `queue` delivers the family `episode_end`.

    `shelf`: versions of the judge that the run itself trains; None: the run has none.

    Raises:
        SettingsError: `judge.judges` names one that does not exist.
        HindcastError: the log is unusable; wrapped in an exception group.
    """
    known = dict(judges)
    if shelf is not None:
        known[shelf.name] = await shelf.begin(log)
    role = _JudgeRole(log, publisher, settings, configured_judges(settings, known))
    following = [role.tasks.follow()]
    if shelf is not None:
        following.append(shelf.follow(log, role.replace))
    await run_queue_worker(queue, role.handle, stop=stop, following=following, name="judge", slow=role.reads)
    await publisher.commit()
    logger.info("judge stopped", **role.counts)


def configured_judges(settings: Settings, judges: Mapping[str, AnyJudge]) -> list[AnyJudge]:
    """The judges of the settings, in their order.

    Raises:
        SettingsError: there is none, or one is unknown.
    """
    for name in settings.judge.judges:
        if name not in judges:
            raise SettingsError(f"judge.judges names {name!r}; {advice(name, judges)}")
    if not settings.judge.judges:
        raise SettingsError(
            f"judge.judges is empty: nothing could be trained on. There are: {', '.join(sorted(judges))}"
        )
    return [judges[name] for name in settings.judge.judges]


class _JudgeRole:
    """What the workers share."""

    def __init__(
        self,
        log: EventLog,
        publisher: Publisher,
        settings: Settings,
        judges: Sequence[AnyJudge],
    ) -> None:
        self._log = log
        self._publisher = publisher
        self._settings = settings
        self._judges = list(judges)
        self.tasks = TaskMemory(log)
        self.counts: Counter[str] = Counter()
        """Verdicts by outcome, postponed ones (`later`), and ones that existed already (`repeated`)."""

    @property
    def reads(self) -> bool:
        """Whether some judge reads with a model or asks one, which may be slow."""
        return any(isinstance(judge, EpisodeModelJudge | EvidenceModelJudge) for judge in self._judges)

    def replace(self, judge: AnyJudge) -> None:
        """Replace a judge by another version, from the next episode on."""
        names = [known.identity.name for known in self._judges]
        self._judges[names.index(judge.identity.name)] = judge

    async def handle(self, delivery: Delivery) -> None:
        """Give an end its verdicts."""
        ended = delivery.recorded.fact
        later = False
        if isinstance(ended, EpisodeEnded):
            for judge in tuple(self._judges):
                await delivery.in_progress()
                with bound_contextvars(episode=ended.episode, position=delivery.recorded.position):
                    later |= not await self._judge(judge, delivery, ended)
        if later:
            await delivery.retry(outage_pause_s(delivery.tries))
        else:
            await delivery.ack()

    async def _judge(self, judge: AnyJudge, delivery: Delivery, ended: EpisodeEnded) -> bool:
        """Whether this judge is done with the end; if not, it is asked again later."""
        entity = verdict_key(ended.episode, judge.identity)
        if await exists(self._log, EpisodeJudged, entity=entity):
            self.counts["repeated"] += 1
            return True
        with judging(ended.episode, judge.identity, delivery) as begun:
            judgment = await self._decide(judge, delivery, ended, entity=entity)
            if judgment is not None:
                judged(begun, judge.identity, judgment, content=self._settings.telemetry.content)
        return judgment is not None

    async def _decide(
        self, judge: AnyJudge, delivery: Delivery, ended: EpisodeEnded, *, entity: str
    ) -> Judgment | None:
        """Return the recorded judgment; None: none yet, because the judge's model is unreachable."""
        recorded, tries = delivery.recorded, delivery.tries
        if tries >= MAX_TRIES:
            opinion = Opinion(judgment=undecided(f"{tries - 1} tries to judge this episode came to nothing"))
        else:
            opinion = await self._opinion(judge, recorded, ended)
        judgment = opinion.judgment
        if opinion.may_pass and tries < LAST_ASKED:
            self.counts["later"] += 1
            logger.warning("put off", judge=judge.identity.name, reason=judgment.reason, tries=tries)
            return None
        fact = EpisodeJudged(
            episode=ended.episode,
            task_id=ended.task_id,
            judge=judge.identity,
            judgment=judgment,
            reading=opinion.reading,
            consulted=opinion.consulted,
        )
        new = await append_once(
            self._publisher, fact, entity=entity, delivery=delivery, episode=ended.episode
        )
        self.counts[judgment.outcome if new else "repeated"] += 1
        return judgment

    async def _opinion(self, judge: AnyJudge, recorded: Recorded, ended: EpisodeEnded) -> Opinion:
        timeout_s = self._settings.judge.timeout_s
        try:
            if isinstance(judge, EpisodeModelJudge):
                story = await judge.story_of(self._log, ended, before=recorded.position)
                return await reach_opinion(judge, story, timeout_s=timeout_s)
            task = await self._task(recorded, ended)
            if isinstance(judge, EvidenceModelJudge):
                return await reach_answer(judge, task, ended.evidence, timeout_s=timeout_s)
            judgment = await reach_judgment(judge, task, ended.evidence, timeout_s=timeout_s)
            return Opinion(judgment=judgment)
        except JudgeTimeout:
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
            asking = isinstance(
                judge, EpisodeModelJudge | EvidenceModelJudge
            )  # a model may be quicker later; rules never are
            return Opinion(judgment=too_slow(judge, timeout_s), may_pass=asking)

    async def _task(self, recorded: Recorded, ended: EpisodeEnded) -> Task | None:
        stalled_s = self._settings.log.append_timeout_s
        return await self.tasks.find(ended.task_id, known_before=recorded.position, stalled_s=stalled_s)
