"""The relabeler `rules`: rules for sites whose full state is known, which is the embedded store."""

import asyncio
from collections.abc import Collection, Sequence

from hindcast.actors.environments.store.evaluators import ending_of
from hindcast.actors.environments.store.hindsight import Walk, hindsight_of
from hindcast.actors.environments.store.tasks import ENVIRONMENT
from hindcast.actors.relabelers.base import AchievedGoal, RelabelResult
from hindcast.core.domain.observation import Page
from hindcast.core.errors import RelabelerFailed
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.log.episode_assembler import AssembledEpisode

RULES = JudgeIdentity(name="rules", version="1")
"""Raise the version whenever it may list other goals, or label steps otherwise, for the same episode."""


class RuleRelabeler:
    """Relabels by the rules of the episode's site."""

    identity = RULES

    def __init__(self, *, max_goals: int, families: Collection[str] | None = None) -> None:
        """`max_goals`: largest number of goals per episode (`relabeler.goals`). `families`: of the goals; None: all."""
        self._max_goals = max_goals
        prefix = f"{ENVIRONMENT}/"
        self._families = (
            None
            if families is None
            else {name.removeprefix(prefix) for name in families if name.startswith(prefix)}
        )

    async def goals(self, episode: AssembledEpisode, pages: Sequence[Page]) -> RelabelResult:
        """See `Relabeler.goals`."""
        return RelabelResult(await asyncio.to_thread(self._goals, episode, pages))

    def _goals(self, episode: AssembledEpisode, pages: Sequence[Page]) -> tuple[AchievedGoal, ...]:
        if episode.task.environment != ENVIRONMENT:
            raise RelabelerFailed(
                f"no rules tell what an episode of {episode.task.environment!r} achieved; there are rules for {ENVIRONMENT}"
            )
        evidence = episode.ended.evidence
        ending = ending_of(evidence)
        if isinstance(ending, str):
            raise RelabelerFailed(ending)
        walk = walk_of(episode, pages)
        return tuple(
            AchievedGoal(
                goal.instruction,
                goal.until_step,
                goal.relevance,
                f"{ENVIRONMENT}/{goal.family}",
                goal.goal,
            )
            for goal in hindsight_of(
                episode.task, evidence, walk, max_goals=self._max_goals, families=self._families
            )
        )


def walk_of(episode: AssembledEpisode, pages: Sequence[Page]) -> Walk:
    """The way of an episode through the store; `pages` holds the page of each step."""
    steps = [step.fact for step in episode.steps]
    return Walk(pages, [step.action for step in steps], [step.result == "ok" for step in steps])
