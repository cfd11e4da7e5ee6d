"""Maps a stream of items with a few concurrent workers, in bounded memory."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def each(
    items: AsyncGenerator[Item, None], work: Callable[[Item], Awaitable[Result]], *, at_once: int
) -> list[Result]:
    """Return the results in the items' order. The stream is read only as fast as the workers take items.

    Raises: what stream or work raise, in an exception group.
    """
    queue: asyncio.Queue[tuple[int, Item] | None] = asyncio.Queue(at_once)
    results: dict[int, Result] = {}

    async def worker() -> None:
        while (taken := await queue.get()) is not None:
            results[taken[0]] = await work(taken[1])

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
