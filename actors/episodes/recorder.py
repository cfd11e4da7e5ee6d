"""Appends the events of one episode: its start, its steps and its end, each linked to the request.

Invariant "Every episode ends once": start and end are created if absent. An actor that finds one already there has
lost the episode and drops its own. Steps are queued and the end is appended after them, so that an ended episode has
all of its steps in the log.
"""

import asyncio
from typing import Protocol

import msgspec

from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Page
from hindcast.core.errors import ExpectationFailed
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    InjectionSeen,
    StepTaken,
    WaitExceeded,
)
from hindcast.events.catalogue.episode import EndReason, Screenshot
from hindcast.events.envelope import BlobRef
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.store import BlobStore


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of an episode that ended by itself."""

    reason: EndReason
    steps: int
    evidence: Evidence
    final_observation: BlobRef
    policy_versions: tuple[int, int]
    """Lowest and highest policy version that sampled a token; -1 for a demonstrator."""
    duration_ms: float
    screenshot: Screenshot | None = None
    """Screenshot of the final page, where one was due."""


class Abandoned(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of an episode that could not be finished."""

    reason: str
    detail: str
    steps: int


class StepRecord(Protocol):
    """Records what happens while an episode is played."""

    async def keep(self, page: Page) -> BlobRef:
        """Store a page as a blob."""
        ...

    async def step(self, fact: StepTaken, *, newest_version: int) -> None:
        """Record one step."""
        ...

    async def exceeded(self, *, setting: str, limit_s: float, waited_for: str) -> None:
        """Record that a wait reached its limit."""
        ...

    async def suspected(self, *, index: int, excerpt: str) -> None:
        """Record that the page before step `index` contains a text that addresses the agent."""
        ...


class EpisodeRecord:
    """Writes the events of one episode."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        actor: str,
        causation: str,
        publisher: Publisher,
        blobs: BlobStore,
    ) -> None:
        """`causation` is the id of the request's event."""
        self._request = request
        self._task_id = request.task.id
        self._actor = actor
        self._causation = causation
        self._publisher = publisher
        self._blobs = blobs
        self.steps = 0
        """Steps recorded so far."""

    async def start(self, *, instruction: str, renderer: str) -> bool:
        """Take the episode; False when another actor has it."""
        fact = EpisodeStarted(
            episode=self._request.episode, actor=self._actor, instruction=instruction, renderer=renderer
        )
        return await self._decide(fact)

    async def keep(self, page: Page) -> BlobRef:
        """Store a page as a blob; equal pages are stored once."""
        return await asyncio.to_thread(self._blobs.put, msgspec.msgpack.encode(page))

    async def keep_image(self, image: bytes) -> BlobRef:
        """Store a screenshot as a blob."""
        return await asyncio.to_thread(self._blobs.put, image)

    async def step(self, fact: StepTaken, *, newest_version: int) -> None:
        """Queue one step."""
        await self._publisher.publish(
            fact,
            entity=fact.episode,
            ordinal=fact.index,
            causation=self._causation,
            correlation=fact.episode,
            policy_version=newest_version,
        )
        self.steps = fact.index + 1

    async def exceeded(self, *, setting: str, limit_s: float, waited_for: str) -> None:
        """Record that a wait reached its limit."""
        await self._note(WaitExceeded(setting=setting, limit_s=limit_s, waited_for=waited_for))

    async def suspected(self, *, index: int, excerpt: str) -> None:
        """Record that the page before step `index` contains a text that addresses the agent."""
        await self._note(InjectionSeen(episode=self._request.episode, index=index, excerpt=excerpt))

    async def _note(self, fact: WaitExceeded | InjectionSeen) -> None:
        episode = self._request.episode
        await self._publisher.publish(fact, entity=episode, causation=self._causation, correlation=episode)

    async def finish(self, outcome: Ended | Abandoned) -> bool:
        """Append the terminal event after all queued steps; False when the episode has one already."""
        episode = self._request.episode
        if isinstance(outcome, Abandoned):
            return await self._decide(
                EpisodeAbandoned(
                    episode=episode,
                    task_id=self._task_id,
                    reason=outcome.reason,
                    detail=outcome.detail,
                    steps=outcome.steps,
                )
            )
        return await self._decide(
            EpisodeEnded(
                episode=episode,
                task_id=self._task_id,
                actor=self._actor,
                reason=outcome.reason,
                steps=outcome.steps,
                evidence=outcome.evidence,
                final_observation=outcome.final_observation,
                policy_versions=outcome.policy_versions,
                duration_ms=outcome.duration_ms,
                screenshot=outcome.screenshot,
            )
        )

    async def _decide(self, fact: EpisodeStarted | EpisodeEnded | EpisodeAbandoned) -> bool:
        return await decide_if_absent(self._publisher, fact, causation=self._causation)


async def decide_if_absent(
    publisher: Publisher, fact: EpisodeStarted | EpisodeEnded | EpisodeAbandoned, *, causation: str
) -> bool:
    """Append a start or an end unless the episode has one; False when it has."""
    try:
        await publisher.decide(fact, entity=fact.episode, causation=causation, correlation=fact.episode)
    except ExpectationFailed:
        return False
    return True
