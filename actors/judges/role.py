"""The judge process: every ended episode gets one verdict from each configured judge.

    episode.ended ── work queue ──> QueueWorker ── Judge ──> episode.judged     (created if absent)
    episode.requested ── follow ──> TaskMemory ──┘ │
    weights.published ── follow ──> JudgeVersions ─┘

It consumes the ends of episodes. It waits for an end (`FETCH_S`), for its task (`log.append_timeout_s` without progress)
and for each judgment (`judge.timeout_s`). It appends episode.judged and wait.exceeded, and acknowledges an end after its
verdicts. Abandoned and cancelled episodes get none.

Invariant "Verdicts are facts about a judge": a redelivered end finds the verdict of any version of the judge, and changes
nothing. The last delivery of an end gives `undecided` without judging: an episode that crashes the judge must not block
its whole group. An end whose model is unreachable is redelivered, with growing pauses.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry.trace import Span

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
)
from hindcast.actors.judges.task_memory import TaskMemory
from hindcast.actors.judges.trained_judges import JudgeVersions
from hindcast.actors.queue_worker import JobResult, QueueHandler, QueueJob, QueueWorker, is_last, report_wait
from hindcast.actors.telemetry.spans import judged, judging
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue import EpisodeEnded, EpisodeJudged
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import Delivery, WorkQueue


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
    handler = _JudgeHandler(log, publisher, settings, configured_judges(settings, known), shelf)
    await QueueWorker(handler, queue, log=log, publisher=publisher, name="judge").run(stop)


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


class _JudgeHandler(QueueHandler):
    """Gives an end one verdict of each judge."""

    def __init__(
        self,
        log: EventLog,
        publisher: Publisher,
        settings: Settings,
        judges: Sequence[AnyJudge],
        shelf: JudgeVersions | None,
    ) -> None:
        self.log = log
        self.publisher = publisher
        self.settings = settings
        self._judges = list(judges)
        self._shelf = shelf
        self._tasks = TaskMemory(log)

    def following(self) -> Sequence[Coroutine[Any, Any, None]]:
        """See `QueueHandler`."""
        tasks = self._tasks.follow()
        return [tasks] if self._shelf is None else [tasks, self._shelf.follow(self.log, self._replace)]

    def _replace(self, judge: AnyJudge) -> None:
        """Replace a judge by another version, from the next episode on."""
        names = [known.identity.name for known in self._judges]
        self._judges[names.index(judge.identity.name)] = judge

    def jobs(self, recorded: Recorded) -> Sequence[QueueJob]:
        """See `QueueHandler`."""
        ended = recorded.fact
        if not isinstance(ended, EpisodeEnded):
            return []
        return [_Verdict(self, judge, recorded, ended) for judge in self._judges]

    async def task(self, recorded: Recorded, ended: EpisodeEnded) -> Task | None:
        """The task of an episode; None: nobody requested it."""
        stalled_s = self.settings.log.append_timeout_s
        return await self._tasks.find(ended.task_id, known_before=recorded.position, stalled_s=stalled_s)


class _Verdict(QueueJob):
    """The verdict of one judge on one episode."""

    def __init__(self, role: _JudgeHandler, judge: AnyJudge, recorded: Recorded, ended: EpisodeEnded) -> None:
        super().__init__(EpisodeJudged, episode=ended.episode, author=judge.identity)
        self._role = role
        self._judge = judge
        self._recorded = recorded
        self._ended = ended

    def span(self, delivery: Delivery) -> AbstractContextManager[Span]:
        """See `QueueJob`."""
        return judging(self.episode, self._judge.identity, delivery)

    def describe(self, begun: Span, fact: Fact) -> None:
        """See `QueueJob`."""
        assert isinstance(fact, EpisodeJudged)
        judged(begun, fact.judge, fact.judgment, content=self._role.settings.telemetry.content)

    async def run(self, delivery: Delivery) -> JobResult:
        """See `QueueJob`."""
        if is_last(delivery):
            reason = f"{delivery.tries - 1} tries to judge this episode came to nothing"
            opinion = Opinion(judgment=undecided(reason))
        else:
            opinion = await self._opinion(delivery)
        fact = EpisodeJudged(
            episode=self.episode,
            task_id=self._ended.task_id,
            judge=self._judge.identity,
            judgment=opinion.judgment,
            reading=opinion.reading,
            consulted=opinion.consulted,
        )
        retry = opinion.judgment.reason if opinion.may_pass else ""
        return JobResult(fact=fact, label=opinion.judgment.outcome, retry=retry)

    async def _opinion(self, delivery: Delivery) -> Opinion:
        judge, recorded, ended = self._judge, self._recorded, self._ended
        timeout_s = self._role.settings.judge.timeout_s
        try:
            if isinstance(judge, EpisodeModelJudge):
                story = await judge.story_of(self._role.log, ended, before=recorded.position)
                return await reach_opinion(judge, story, timeout_s=timeout_s)
            task = await self._role.task(recorded, ended)
            if isinstance(judge, EvidenceModelJudge):
                return await reach_answer(judge, task, ended.evidence, timeout_s=timeout_s)
            judgment = await reach_judgment(judge, task, ended.evidence, timeout_s=timeout_s)
            return Opinion(judgment=judgment)
        except JudgeTimeout:
            await report_wait(
                self._role.publisher,
                delivery,
                episode=self.episode,
                setting="judge.timeout_s",
                limit_s=timeout_s,
                waited_for=f"the verdict of {judge.identity.name} on {self.episode}",
            )
            # a model may be quicker later; rules never are
            asks = isinstance(judge, EpisodeModelJudge | EvidenceModelJudge)
            return Opinion(judgment=too_slow(judge, timeout_s), may_pass=asks)
