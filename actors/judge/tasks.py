"""The judge's memory of tasks: a fold of the requests, so that an end can be judged by the goal it was asked for.

A task is known by its content, so the memory grows with the tasks of a run and not with its episodes. A request stands
before its episode's end in the log: once everything up to the end has been seen, a task that is missing never comes.
"""

import asyncio
from contextlib import aclosing

from actors.following import follow
from core.task import Task
from events.catalogue import EpisodeRequested
from events.log import EventLog


class TaskMemory:
    """Tasks by id, as far as the log has been read."""

    def __init__(self) -> None:
        self.position = 0
        """Requests up to here are known."""
        self._tasks: dict[str, Task] = {}
        self._grown = asyncio.Condition()

    async def follow(self, log: EventLog) -> None:
        """Fold the log, for ever."""
        async with aclosing(follow(log, after=0, families={"request"})) as batches:
            async for followed in batches:
                for recorded in followed.recorded:
                    if isinstance(recorded.fact, EpisodeRequested):
                        self._tasks[recorded.fact.task.id] = recorded.fact.task
                async with self._grown:
                    self.position = followed.position
                    self._grown.notify_all()

    async def find(self, task_id: str, *, known_before: int, stalled_s: float) -> Task | None:
        """The task, or None when no request before position `known_before` has it.

        Raises:
            TimeoutError: the log was read no further for `stalled_s`, so nobody can tell.

        """
        while self.position < known_before - 1 and task_id not in self._tasks:
            reached = self.position
            async with asyncio.timeout(stalled_s), self._grown:
                await self._grown.wait_for(lambda reached=reached: self.position > reached)  # type: ignore[misc]
        return self._tasks.get(task_id)
