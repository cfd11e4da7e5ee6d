"""The judge's memory of tasks, so that an end can be judged by the goal it was asked for.

Follows the requests from where the log ends at the start, and looks back only for a task that it misses: an end that
waits to be judged has its request shortly before it, so that a start does not depend on the length of history. What was
looked through once is remembered, and is never looked through again.

A request stands before its episode's end in the log: once everything up to the end has been seen, and everything before
the start looked through, a task that is missing never comes. A task is known by its content, so the memory grows with the
tasks that a judge meets and not with its episodes.
"""

import asyncio

from hindcast.actors.family_follower import look_back
from hindcast.actors.log_follower import LogFollower
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import EpisodeRequested
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog

FAMILIES = frozenset({"request"})


class TaskMemory(LogFollower):
    """Tasks by id: of all requests in a stretch of the log that grows at both ends."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(log, FAMILIES)
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
        """Take in the stretch before what is known."""
        found, self._after = await look_back(self._log, until=self._after, families=FAMILIES)
        for recorded in found:
            self._take(recorded)
