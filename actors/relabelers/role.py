"""The relabeler process: every ended episode gets the goals that it achieved, from the configured relabeler.

    episode.ended ── work queue ──> QueueWorker ── Relabeler ──> episode.relabeled     (created if absent)
    request, start, steps ── follow ──> EpisodeMemory ──┤
    weights.published ── follow ──> PublishedVersions ──┘

It consumes the ends of episodes, successful ones too. It waits for an end (`FETCH_S`), for its steps
(`log.append_timeout_s` without progress) and for the relabeler (`relabeler.timeout_s`). It appends episode.relabeled and
wait.exceeded, and acknowledges an end after its relabels. Only training episodes of the policy are relabelled:
abandoned and cancelled episodes get no relabels, nor do demonstrations and evaluations. A relabeler that the run itself
trains reads demonstrations too, as lessons.

Invariant "Verdicts are facts about a judge": a redelivered end finds the relabels of any version of the relabeler, and changes
nothing. A relabeler that is unreachable is asked again later. After the last attempt, or where the relabeler cannot
decide, the event has no relabels and says why. The last delivery of an end gives none without relabelling, so that an episode that crashes the
relabeler does not wait forever.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry.trace import Span

from hindcast.actors.episodes.time_limit import limited
from hindcast.actors.published_versions import PublishedVersions
from hindcast.actors.queue_worker import JobResult, QueueHandler, QueueJob, QueueWorker, is_last, report_wait
from hindcast.actors.relabelers.base import Relabeler, RelabelResult, why_not_goal
from hindcast.actors.relabelers.episode_memory import EpisodeMemory
from hindcast.actors.relabelers.plugin import wanted_families
from hindcast.actors.relabelers.rewritten_prompts import PromptWriter
from hindcast.actors.telemetry.spans import relabeled, relabeling
from hindcast.core.domain.observation import Page
from hindcast.core.errors import (
    BlobCorrupt,
    BlobMissing,
    HindcastError,
    RelabelerFailed,
    RelabelerUnavailable,
    SettingsError,
)
from hindcast.core.settings.schema import Settings
from hindcast.core.structs import decode_msgpack
from hindcast.events.catalogue import EpisodeEnded, EpisodeRelabeled
from hindcast.events.catalogue.verdict import Relabel
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import Delivery, WorkQueue
from hindcast.storage.blobs.store import BlobStore

MOST_BYTES = 512 * 1024
"""Largest size of the prompts in one event, which must fit into a message of the broker; further goals are left out."""


async def run_relabeler(
    *,
    log: EventLog,
    publisher: Publisher,
    queue: WorkQueue,
    blobs: BlobStore,
    settings: Settings,
    relabeler: Relabeler | PublishedVersions[Any],
    tokenizer: Any,
    stop: asyncio.Event,
) -> None:
    """Relabel until `stop` is set. `queue` delivers the family `episode_end`; `tokenizer` is the policy's.

    `relabeler`: a fixed relabeler, or the versions of the one that the run itself trains.

    Raises:
        HindcastError: the log is unusable; wrapped in an exception group.
    """
    versions = relabeler if isinstance(relabeler, PublishedVersions) else None
    speaks: Relabeler = await versions.begin(log) if versions else relabeler  # type: ignore[assignment]
    handler = _RelabelerHandler(log, publisher, blobs, settings, speaks, tokenizer, versions)
    await QueueWorker(handler, queue, log=log, publisher=publisher, name="relabeler").run(stop)


class _OutOfTime(Exception):
    """The relabeler took longer than `relabeler.timeout_s`."""


class _RelabelerHandler(QueueHandler):
    """Gives an end its relabels."""

    def __init__(
        self,
        log: EventLog,
        publisher: Publisher,
        blobs: BlobStore,
        settings: Settings,
        relabeler: Relabeler,
        tokenizer: Any,
        versions: PublishedVersions[Any] | None,
    ) -> None:
        self.log = log
        self.publisher = publisher
        self.blobs = blobs
        self.settings = settings
        self.tokenizer = tokenizer
        self.episodes = EpisodeMemory(log)
        self.shown = {"online", "demonstration"} if versions else {"online"}
        """Origins of the episodes that the relabeler reads."""
        self._relabeler = relabeler
        self._versions = versions

    def following(self) -> Sequence[Coroutine[Any, Any, None]]:
        """See `QueueHandler`."""
        episodes = self.episodes.follow()
        if self._versions is None:
            return [episodes]
        return [episodes, self._versions.follow(self.log, self._replace)]

    def _replace(self, relabeler: Relabeler) -> None:
        """Use another version of the relabeler from the next episode on."""
        self._relabeler = relabeler

    def jobs(self, recorded: Recorded) -> Sequence[QueueJob]:
        """See `QueueHandler`."""
        ended = recorded.fact
        return [_Relabels(self, self._relabeler, ended)] if isinstance(ended, EpisodeEnded) else []

    def forget(self, recorded: Recorded) -> None:
        """See `QueueHandler`."""
        if isinstance(recorded.fact, EpisodeEnded):
            self.episodes.forget(recorded.fact.episode)


class _Relabels(QueueJob):
    """The relabels of one episode."""

    def __init__(self, role: _RelabelerHandler, relabeler: Relabeler, ended: EpisodeEnded) -> None:
        super().__init__(EpisodeRelabeled, episode=ended.episode, author=relabeler.identity)
        self._role = role
        self._settings = role.settings
        self._relabeler = relabeler
        self._ended = ended

    def span(self, delivery: Delivery) -> AbstractContextManager[Span]:
        """See `QueueJob`."""
        return relabeling(self.episode, self._relabeler.identity, delivery)

    def describe(self, open_span: Span, fact: Fact) -> None:
        """See `QueueJob`."""
        assert isinstance(fact, EpisodeRelabeled)
        relabeled(open_span, goals=len(fact.relabels), failed=bool(fact.failure))

    async def run(self, delivery: Delivery) -> JobResult:
        """See `QueueJob`."""
        relabels: tuple[Relabel, ...] = ()
        finding = RelabelResult(())
        retry = ""
        try:
            episode = await self._episode(delivery)
            if episode.request.origin not in self._role.shown:
                return JobResult(fact=None)
            if is_last(delivery):
                raise RelabelerFailed(f"{delivery.tries - 1} tries to relabel this episode came to nothing")
            relabels, finding = await self._relabel(delivery, episode, self._relabeler)
            failure = finding.failure
        except (RelabelerUnavailable, _OutOfTime) as error:
            retry = str(error)
            failure = f"asked {delivery.tries} times in vain: {error}"
        except (RelabelerFailed, BlobMissing, BlobCorrupt) as error:
            failure = str(error)
        fact = EpisodeRelabeled(
            episode=self.episode,
            task_id=self._ended.task_id,
            relabeler=self._relabeler.identity,
            relabels=relabels,
            failure=failure,
            consulted=finding.consulted,
            reading=finding.reading,
        )
        return JobResult(fact=fact, label="failed" if failure else "relabeled", retry=retry)

    async def _episode(self, delivery: Delivery) -> AssembledEpisode:
        stalled_s, position = self._settings.log.append_timeout_s, delivery.recorded.position
        episode = await self._role.episodes.find(self.episode, position=position, stalled_s=stalled_s)
        if episode is None:
            raise RelabelerFailed(
                "request, start or steps of this episode do not stand in the log before its end"
            )
        return episode

    async def _relabel(
        self, delivery: Delivery, episode: AssembledEpisode, relabeler: Relabeler
    ) -> tuple[tuple[Relabel, ...], RelabelResult]:
        if not episode.steps:
            return (), RelabelResult(())
        name, limit_s = episode.ended.episode, self._settings.relabeler.timeout_s
        try:
            async with limited(limit_s) as scope:
                pages = await asyncio.to_thread(pages_of, self._role.blobs, episode)
                finding = await goals_found(relabeler, episode, pages)
                return await asyncio.to_thread(self._rewritten, episode, pages, finding), finding
        except TimeoutError:
            if not scope.expired():
                raise
            waited_for = f"the goals that {relabeler.identity.name} finds in {name}"
            await report_wait(
                self._role.publisher,
                delivery,
                episode=name,
                setting="relabeler.timeout_s",
                limit_s=limit_s,
                waited_for=waited_for,
            )
            raise _OutOfTime(f"no answer within {limit_s:g} s (relabeler.timeout_s)") from None
        except (HindcastError, OSError):
            raise
        except Exception as error:  # a relabeler's mistake must not leave the episode waiting forever
            raise RelabelerFailed(
                f"{relabeler.identity.name} could not tell what the episode achieved ({type(error).__name__}: {error})"
            ) from error

    def _rewritten(
        self, episode: AssembledEpisode, pages: Sequence[Page], finding: RelabelResult
    ) -> tuple[Relabel, ...]:
        """The goals with their rewritten prompts. Blocks."""
        families = wanted_families(self._settings)
        goals = [goal for goal in finding.goals if families is None or goal.family in families]
        goals = goals[: self._settings.relabeler.goals]
        if not goals:
            return ()
        writer = PromptWriter(episode, pages, tokenizer=self._role.tokenizer, settings=self._settings.actors)
        relabels: list[Relabel] = []
        size = 0
        for goal in goals:
            try:
                prompts = writer.rewritten(goal.instruction, goal.until_step)
                stop = writer.stop(goal.instruction, goal.until_step)
            except SettingsError as error:
                raise RelabelerFailed(f"the goal {goal.instruction[:80]!r}…: {error}") from None
            size += sum(len(prompt.ids) for prompt in (*prompts, *([stop.prompt] if stop else ())))
            if size > MOST_BYTES:
                break
            relabels.append(
                Relabel(
                    instruction=goal.instruction,
                    until_step=goal.until_step,
                    relevance=goal.relevance,
                    prompts=prompts,
                    family=goal.family,
                    goal=goal.goal,
                    stop=stop,
                )
            )
        return tuple(relabels)


def pages_of(blobs: BlobStore, episode: AssembledEpisode) -> list[Page]:
    """The page of each step.

    Raises:
        BlobMissing, BlobCorrupt: a page was deleted, or is damaged.
        RelabelerFailed: a step recorded none.
    """
    pages = []
    for step in episode.steps:
        if step.fact.observation is None:
            raise RelabelerFailed(f"step {step.fact.index} recorded no page")
        pages.append(decode_msgpack(blobs.get(step.fact.observation), Page))
    return pages


async def goals_found(
    relabeler: Relabeler, episode: AssembledEpisode, pages: Sequence[Page]
) -> RelabelResult:
    """Run a relabeler and check its goals: a wrong relabel is never recorded.

    Raises:
        RelabelerUnavailable, RelabelerFailed: see `Relabeler.goals`; the latter also for an invalid goal.
    """
    finding = await relabeler.goals(episode, pages)
    for goal in finding.goals:
        wrong = why_not_goal(goal, steps=len(episode.steps))
        if wrong is not None:
            raise RelabelerFailed(f"the relabeler {relabeler.identity.name} cannot be followed: {wrong}")
    return finding
