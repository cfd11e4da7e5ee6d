"""The judge's memory of tasks, so that an ended episode is judged by its own goal.

It follows the requests from the end of the log at start, and reads backwards only for a task that it misses. An end that
waits to be judged has its request shortly before it, so the cost of a start does not depend on the length of the log.
Each stretch is read once.

A request precedes its episode's end in the log. Once everything up to the end and before the start has been read, a
missing task never arrives. Tasks are identified by content, so the memory grows with distinct tasks, not with episodes.
"""

import asyncio

from hindcast.actors.log_follower import LogFollower, look_back
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import EpisodeRequested
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog

FAMILIES = frozenset({"request"})


class TaskMemory(LogFollower):
    """Tasks by id, from all requests in a stretch of the log that grows at both ends."""

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
        """Read the stretch of the log before the known one."""
        found, self._after = await look_back(self._log, until=self._after, families=FAMILIES)
        for recorded in found:
            self._take(recorded)
