"""Reads recorded episodes from the log: all, some by name, or a seeded sample.

The sample has the episodes whose names rank lowest under the seed. Therefore it is the same for every reader of the log,
needs one pass, and never keeps more episodes than requested.
"""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import msgspec

from hindcast.core.errors import HindcastError
from hindcast.core.seeds import derive_seed
from hindcast.events.catalogue import EpisodeRequested, EpisodeStarted
from hindcast.events.log.episode_assembler import AssembledEpisode, EpisodeAssembler
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_concurrently(
    items: AsyncGenerator[Item, None], work: Callable[[Item], Awaitable[Result]], *, at_once: int
) -> list[Result]:
    """Run `work` on a stream of items, `at_once` concurrently; returns the results in order.

    The stream is read only as fast as the workers take items. Raises the errors of stream and work as an exception group.
    """
    queue: asyncio.Queue[tuple[int, Item] | None] = asyncio.Queue(at_once)
    results: dict[int, Result] = {}

    async def worker() -> None:
        while (entry := await queue.get()) is not None:
            results[entry[0]] = await work(entry[1])

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(worker())
        number = 0
        async with aclosing(items):
            async for item in items:
                await queue.put((number, item))
                number += 1
        for _ in range(at_once):
            await queue.put(None)
    return [results[index] for index in range(number)]


class NoSuchEpisode(HindcastError):
    """A requested episode is not in the log, or has not started."""


class EpisodeSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Selects episodes of a run that meet all conditions."""

    episodes: frozenset[str] = frozenset()
    """Episodes by name; empty: any."""
    families: frozenset[str] = frozenset()
    """Families such as `find_price` or `store/find_price`; empty: any."""
    origin: str | None = None
    """`online`, `demonstration` or `evaluation`; None: any."""
    sample: int | None = None
    """Maximum number of episodes, drawn by `seed`; None: all."""
    seed: int = 1

    def includes(self, request: EpisodeRequested) -> bool:
        """Whether an episode meets the conditions, apart from the sample."""
        task = request.task
        return (
            (not self.episodes or request.episode in self.episodes)
            and (not self.families or bool(self.families & {task.family, task.full_family}))
            and self.origin in (None, request.origin)
        )


async def recorded_episodes(
    log: EventLog, selection: EpisodeSelection, *, steps: bool = True
) -> AsyncGenerator[AssembledEpisode, None]:
    """Yield the selected episodes that started: each once its end is read, those of a sample after the whole log.

    Without `steps`, no steps are kept.

    Raises:
        NoSuchEpisode: an episode requested by name has not started.
        CorruptEvent, UnknownVersion, ForeignLog: see `events.log.reader.read`.
    """
    assembler = EpisodeAssembler(wants=selection.includes, steps=steps)
    sample = None if selection.sample is None else _Sample(selection.sample, seed=selection.seed)
    yielded: set[str] = set()
    async with aclosing(read(log, after=0, strict=False)) as recordeds:
        async for recorded in recordeds:
            ended = assembler.take(recorded)
            if sample is None and ended is not None:
                yielded.add(ended.name)
                yield ended
            elif sample is not None and isinstance(recorded.fact, EpisodeStarted):
                started = assembler.running.get(recorded.fact.episode)
                dropped = None if started is None else sample.add(started)
                if dropped is not None:
                    assembler.forget(dropped)
    not_started = sorted(selection.episodes - yielded - assembler.running.keys())
    if not_started and sample is None:
        raise NoSuchEpisode(
            f"run {log.run} has started no episode {not_started[0]!r}"
            f"{f', nor {len(not_started) - 1} others' if len(not_started) > 1 else ''}. Run: hindcast episode list"
        )
    for episode in (assembler.running if sample is None else sample.episodes).values():
        yield episode


class _Sample:
    """The episodes whose names rank lowest under a seed."""

    def __init__(self, size: int, *, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._ranks: list[tuple[int, str]] = []
        """Heap with the highest rank first."""
        self.episodes: dict[str, AssembledEpisode] = {}

    def add(self, episode: AssembledEpisode) -> str | None:
        """Add an episode. Returns the name of the episode that leaves the sample; None if none does."""
        self.episodes[episode.name] = episode
        heapq.heappush(self._ranks, (-derive_seed(self._seed, "replay", episode.name), episode.name))
        if len(self._ranks) <= self._size:
            return None
        _, dropped = heapq.heappop(self._ranks)
        del self.episodes[dropped]
        return dropped
