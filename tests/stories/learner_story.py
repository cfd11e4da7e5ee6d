"""A learner in one process that is watched, and killed at a chosen event, for tests of its loop."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from hindcast.events.envelope import Fact, Record, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import Ancestor, Expectation, LogIdentity
from stories.training_story import (
    Bench,
    events_of,
)


class Killed(Exception):
    """The learner's process dies here."""


class Watched:
    """A log that does something when the learner appends its n-th event: before it is stored, or after."""

    def __init__(
        self,
        log: MemoryLog,
        number: int,
        *,
        before: Callable[[], Awaitable[None]] | None = None,
        after: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._log = log
        self._left = number
        self._before = before
        self._after = after

    @property
    def run(self) -> str:
        return self._log.run

    @property
    def lineage(self) -> tuple[Ancestor, ...]:
        return self._log.lineage

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        self._left -= 1
        if self._left == 0 and self._before is not None:
            await self._before()
        positions = await self._log.append(batch, expect=expect)
        if self._left == 0 and self._after is not None:
            await self._after()
        return positions

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        return await self._log.read(after=after, limit=limit)

    def tail(self, *, after: int, headers: bool = True) -> AsyncIterator[list[Stored]]:
        return self._log.tail(after=after)

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        return await self._log.last_under(subject, until=until)

    async def identity(self) -> LogIdentity:
        return await self._log.identity()


async def die() -> None:
    raise Killed


def kinds(facts: Sequence[Fact]) -> list[str]:
    return [type(fact).__name__ for fact in facts]


async def facts_of(made: Bench, *types: type[Fact]) -> list[Any]:
    return [r.fact for r in await events_of(made.log) if isinstance(r.fact, types)]
