"""The relabeler `rules`: rules for sites whose full state is known, which is the embedded store."""

import asyncio
from collections.abc import Sequence

from hindcast.actors.environments.store.evaluators import ending_of
from hindcast.actors.environments.store.hindsight import hindsight_of
from hindcast.actors.environments.store.relevance import Walk
from hindcast.actors.environments.store.tasks import ENVIRONMENT
from hindcast.actors.relabelers.base import AchievedGoal, PlayedEpisode, RelabelResult
from hindcast.core.domain.observation import Page
from hindcast.core.errors import RelabelerFailed
from hindcast.events.catalogue.verdict import JudgeIdentity

RULES = JudgeIdentity(name="rules", version="1")
"""Raise the version whenever it may list other goals, or label steps otherwise, for the same episode."""


class RuleRelabeler:
    """Relabels by the rules of the episode's site."""

    identity = RULES

    def __init__(self, *, most: int) -> None:
        """`most`: largest number of goals per episode (`relabeler.goals`)."""
        self._most = most

    async def goals(self, episode: PlayedEpisode, pages: Sequence[Page]) -> RelabelResult:
        """See `Relabeler.goals`."""
        return RelabelResult(await asyncio.to_thread(self._goals, episode, pages))

    def _goals(self, episode: PlayedEpisode, pages: Sequence[Page]) -> tuple[AchievedGoal, ...]:
        if episode.task.environment != ENVIRONMENT:
            raise RelabelerFailed(
                f"no rules tell what an episode of {episode.task.environment!r} achieved; there are rules for {ENVIRONMENT}"
            )
        evidence = episode.ended.evidence
        ending = ending_of(evidence)
        if isinstance(ending, str):
            raise RelabelerFailed(ending)
        walk = Walk(
            pages,
            [step.action for step in episode.steps],
            [step.result == "ok" for step in episode.steps],
        )
        return tuple(
            AchievedGoal(
                found.instruction,
                found.until_step,
                found.relevance,
                f"{ENVIRONMENT}/{found.family}",
                found.goal,
            )
            for found in hindsight_of(episode.task, evidence, walk, most=self._most)
        )
