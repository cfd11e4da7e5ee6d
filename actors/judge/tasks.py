"""The judge's memory of tasks, so that an end can be judged by the goal it was asked for.

Follows the requests from where the log ends at the start, and looks back only for a task that it misses: an end that
waits to be judged has its request shortly before it, so that a start does not depend on the length of history. What was
looked through once is remembered, and is never looked through again.

A request stands before its episode's end in the log: once everything up to the end has been seen, and everything before
the start looked through, a task that is missing never comes. A task is known by its content, so the memory grows with the
tasks that a judge meets and not with its episodes.
"""

import asyncio
from contextlib import aclosing

from actors.following import follow, look_back
from core.task import Task
from events.catalogue import EpisodeRequested
from events.envelope import Recorded
from events.log import EventLog

FAMILY = "request"


class TaskMemory:
    """Tasks by id: of all requests in a stretch of the log that grows at both ends."""

    def __init__(self, log: EventLog) -> None:
        self.position = 0
        """Requests up to here are known …"""
        self._after = 0
        """… from after here on."""
        self._log = log
        self._tasks: dict[str, Task] = {}
        self._grown = asyncio.Condition()
        self._looking_back = asyncio.Lock()

    async def follow(self) -> None:
        """Follow the log from its end now, for ever."""
        self._after = (await self._log.identity()).last
        await self._reach(self._after)
        async with aclosing(follow(self._log, after=self._after, families={FAMILY})) as batches:
            async for followed in batches:
                for recorded in followed.recorded:
                    self._take(recorded)
                await self._reach(followed.position)

    async def _reach(self, position: int) -> None:
        async with self._grown:
            self.position = position
            self._grown.notify_all()

    def _take(self, recorded: Recorded) -> None:
        if isinstance(recorded.fact, EpisodeRequested):
            task = recorded.fact.task
            self._tasks[task.id] = task

    async def find(self, task_id: str, *, known_before: int, stalled_s: float) -> Task | None:
        """The task, or None when no request before position `known_before` has it.

        Raises:
            TimeoutError: the log was read no further for `stalled_s`, so nobody can tell.

        """
        while self.position < known_before - 1 and task_id not in self._tasks:
            reached = self.position
            async with asyncio.timeout(stalled_s), self._grown:
                await self._grown.wait_for(lambda reached=reached: self.position > reached)  # type: ignore[misc]
        async with self._looking_back:
            while task_id not in self._tasks and self._after > 0:
                await self._look_back()
        return self._tasks.get(task_id)

    async def _look_back(self) -> None:
        """Take in the stretch before what is known."""
        found, self._after = await look_back(self._log, until=self._after, families={FAMILY})
        for recorded in found:
            self._take(recorded)
