"""What a view reads: follows a run's log and yields views of it periodically; queries the read model.

Consumes the log's tail, from `LOOK_BACK` events before its end. Waits for the log, and `interval_s` between views.
Produces nothing: it reads as role `reader`, and the run does not notice it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
from sqlalchemy import Connection

from hindcast.app.attach.consumers import ConsumerRow, list_consumers
from hindcast.app.runs.runs import RunHandle
from hindcast.app.watch.state import WatchFold
from hindcast.app.watch.view import RunView
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read, tail
from hindcast.storage.readmodel.episode_queries import EpisodeDetail, EpisodeRow, list_episodes, show_episode
from hindcast.storage.readmodel.outcome_counts import success_by_version

LOOK_BACK = 50_000
"""Events before the log's end that a view covers; `hindcast run show` covers older ones."""
CONSUMERS_S = 5.0
"""Seconds between two queries of the consumers."""
Answer = TypeVar("Answer")
Counts = tuple[int, float, int]
"""Policy version, successes weighted by the run's shares of task families, judged episodes."""


async def look(
    handle: RunHandle,
    show: Callable[[RunView], bool],
    *,
    interval_s: float,
    on_catching_up: Callable[[int, int], None] = lambda _done, _all: None,
) -> None:
    """Show a view at once and then every `interval_s` until `show` returns False. Without a running system, time stops."""
    watch = WatchFold(judge=handle.settings.judge.judges[0], group_size=handle.settings.curriculum.members)
    async with handle.connect_log("reader") as log:
        last = (await log.identity()).last
        position = first = max(0, last - LOOK_BACK)
        async for recorded in read(log, after=first, strict=False):
            watch.apply(recorded)
            position = recorded.position
            on_catching_up(position - first, last - first)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(_follow(log, watch, position))
            rows: list[ConsumerRow] = []
            asked = -CONSUMERS_S
            while True:
                if time.monotonic() - asked >= CONSUMERS_S:
                    rows, asked = await list_consumers(handle), time.monotonic()
                up = any(row.kind == "ours" and row.state != "stopped" for row in rows)
                view = watch.view(time.time_ns() if up else 0, up=up)
                if not show(msgspec.structs.replace(view, consumers=tuple(rows))):
                    break
                await asyncio.sleep(interval_s)
            following.cancel()


async def _follow(log: EventLog, watch: WatchFold, position: int) -> None:
    async for recorded in tail(log, after=position):
        watch.apply(recorded)


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
