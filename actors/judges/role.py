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

from hindcast.actors.judges.base import Judge, JudgeVersions, reach_verdict, undecided
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.log_follower import LogFollower, look_back
from hindcast.actors.queue_worker import JobResult, QueueHandler, QueueJob, QueueWorker, is_last, report_wait
from hindcast.actors.telemetry.spans import judged, judging
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue import EpisodeEnded, EpisodeJudged, EpisodeRequested
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import Delivery, WorkQueue
from hindcast.storage.blobs.store import BlobStore

REQUESTS = frozenset({"request"})


async def run_judge(
    *,
    log: EventLog,
    publisher: Publisher,
    queue: WorkQueue,
    settings: Settings,
    blobs: BlobStore,
    stop: asyncio.Event,
    judges: Mapping[str, Judge],
    shelf: JudgeVersions | None = None,
) -> None:
    """Judge until `stop` is set. `queue` delivers the family `episode_end`; `blobs` holds the episodes' pages.

    `shelf`: versions of the judge that the run itself trains; None: the run has none.

    Raises:
        SettingsError: `judge.judges` names one that does not exist.
        HindcastError: the log is unusable; wrapped in an exception group.
    """
    judges_by_name = dict(judges)
    if shelf is not None:
        judges_by_name[shelf.name] = await shelf.begin(log)
    handler = _JudgeHandler(
        log, publisher, blobs, settings, configured_judges(settings, judges_by_name), shelf
    )
    await QueueWorker(handler, queue, log=log, publisher=publisher, name="judge").run(stop)


def configured_judges(settings: Settings, judges: Mapping[str, Judge]) -> list[Judge]:
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


class TaskMemory(LogFollower):
    """Tasks by id, from all requests in a stretch of the log that grows at both ends.

    It follows the requests from the end of the log at start, and reads backwards only for a task that it misses. An end
    that waits to be judged has its request shortly before it, so the cost of a start does not depend on the length of
    the log. Each stretch is read once. Once everything up to the end and before the start has been read, a missing task
    never arrives. Tasks are identified by content, so the memory grows with distinct tasks, not with episodes.
    """

    def __init__(self, log: EventLog) -> None:
        super().__init__(log, REQUESTS)
        self._tasks: dict[str, Task] = {}
        self._looking_back = asyncio.Lock()

    def _take(self, recorded: Recorded) -> None:
        if isinstance(recorded.fact, EpisodeRequested):
            task = recorded.fact.task
            self._tasks[task.id] = task

    async def find(self, task_id: str, *, known_before: int, stalled_s: float) -> Task | None:
        """The task, or None when no request before position `known_before` has it. Raises BrokerUnreachable as `LogFollower`."""
        await self._known_before(known_before, stalled_s=stalled_s, enough=lambda: task_id in self._tasks)
        async with self._looking_back:
            while task_id not in self._tasks and self._after > 0:
                await self._look_back()
        return self._tasks.get(task_id)

    async def _look_back(self) -> None:
        """Read the stretch of the log before the known one."""
        requests, self._after = await look_back(self._log, until=self._after, families=REQUESTS)
        for recorded in requests:
            self._take(recorded)


class _JudgeHandler(QueueHandler):
    """Gives an end one verdict of each judge."""

    def __init__(
        self,
        log: EventLog,
        publisher: Publisher,
        blobs: BlobStore,
        settings: Settings,
        judges: Sequence[Judge],
        shelf: JudgeVersions | None,
    ) -> None:
        self.log = log
        self.publisher = publisher
        self.settings = settings
        self._blobs = blobs
        self._judges = list(judges)
        self._shelf = shelf
        self._tasks = TaskMemory(log)

    def following(self) -> Sequence[Coroutine[Any, Any, None]]:
        """See `QueueHandler`."""
        tasks = self._tasks.follow()
        return [tasks] if self._shelf is None else [tasks, self._shelf.follow(self.log, self._replace)]

    def _replace(self, judge: Judge) -> None:
        """Replace a judge by another version, from the next episode on."""
        names = [configured.identity.name for configured in self._judges]
        self._judges[names.index(judge.identity.name)] = judge

    def jobs(self, recorded: Recorded) -> Sequence[QueueJob]:
        """See `QueueHandler`."""
        ended = recorded.fact
        if not isinstance(ended, EpisodeEnded):
            return []
        return [_Verdict(self, judge, recorded, ended) for judge in self._judges]

    async def episode(self, recorded: Recorded, ended: EpisodeEnded) -> JudgedEpisode:
        """An ended episode as judges get it."""
        stalled_s, position = self.settings.log.append_timeout_s, recorded.position
        task = await self._tasks.find(ended.task_id, known_before=position, stalled_s=stalled_s)
        return JudgedEpisode.in_log(self.log, self._blobs, task, ended, before=position)


class _Verdict(QueueJob):
    """The verdict of one judge on one episode."""

    def __init__(self, role: _JudgeHandler, judge: Judge, recorded: Recorded, ended: EpisodeEnded) -> None:
        super().__init__(EpisodeJudged, episode=ended.episode, author=judge.identity)
        self._role = role
        self._judge = judge
        self._recorded = recorded
        self._ended = ended

    def span(self, delivery: Delivery) -> AbstractContextManager[Span]:
        """See `QueueJob`."""
        return judging(self.episode, self._judge.identity, delivery)

    def describe(self, open_span: Span, fact: Fact) -> None:
        """See `QueueJob`."""
        assert isinstance(fact, EpisodeJudged)
        judged(open_span, fact.judge, fact.judgment, content=self._role.settings.telemetry.content)

    async def run(self, delivery: Delivery) -> JobResult:
        """See `QueueJob`."""
        judge, timeout_s = self._judge, self._role.settings.judge.timeout_s
        if is_last(delivery):
            verdict = undecided(f"{delivery.tries - 1} tries to judge this episode came to nothing")
        else:
            episode = await self._role.episode(self._recorded, self._ended)
            verdict = await reach_verdict(judge, episode, timeout_s=timeout_s)
        if verdict.timed_out:
            await report_wait(
                self._role.publisher,
                delivery,
                episode=self.episode,
                setting="judge.timeout_s",
                limit_s=timeout_s,
                waited_for=f"the verdict of {judge.identity.name} on {self.episode}",
            )
        # a model may be quicker later; rules never are
        later = verdict.may_pass or (verdict.timed_out and judge.asks_model)
        return JobResult(
            fact=verdict.as_fact(judge.identity, episode=self.episode, task_id=self._ended.task_id),
            label=verdict.judgment.outcome,
            retry=verdict.judgment.reason if later else "",
        )
