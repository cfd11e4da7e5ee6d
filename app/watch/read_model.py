"""Queries of a view to the read model: the success curve, episodes, an episode's steps. Each answer is consistent."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from hindcast.app.runs.runs import RunHandle
from hindcast.storage.readmodel.episode_queries import EpisodeDetail, EpisodeRow, list_episodes, show_episode
from hindcast.storage.readmodel.outcome_counts import success_by_version

Answer = TypeVar("Answer")
Counts = tuple[int, float, int]
"""Policy version, successes weighted by the run's shares of task families, judged episodes."""


class WatchReadModel:
    """A run's read model, queried in threads so that keys stay responsive."""

    def __init__(self, handle: RunHandle) -> None:
        self._model = handle.read_model()

    async def curve(self) -> list[Counts]:
        """Success of online episodes by policy version, all in order. Raises ReadModelUnavailable."""
        points = await self._ask(success_by_version)
        return sorted(
            (one.version, one.weighted.rate * one.success.judged, one.success.judged) for one in points
        )

    async def episodes(self, *, outcome: str | None, limit: int) -> list[EpisodeRow]:
        """The latest requested episodes. Raises ReadModelUnavailable."""
        return await self._ask(lambda connection: list_episodes(connection, outcome=outcome, limit=limit))

    async def episode(self, name: str) -> EpisodeDetail:
        """One episode with its steps. Raises ReadModelUnavailable, NotInReadModel."""
        return await self._ask(lambda connection: show_episode(connection, name))

    async def _ask(self, question: Callable[[Connection], Answer]) -> Answer:
        def ask() -> Answer:
            with self._model.reading() as connection:
                return question(connection)

        return await asyncio.to_thread(ask)

    def close(self) -> None:
        """Close the database."""
        self._model.close()
