"""A time limit that stops while the task waits for its turn: it limits the work, not the queue before it.

    limited(seconds) ── work ── uncounted() ── waiting for a turn ── work ──>

A judge is not slow because four others use its model at once. The limit belongs to the task that set it and to the
tasks that it starts.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

_limit: ContextVar[asyncio.Timeout | None] = ContextVar("limit", default=None)


@asynccontextmanager
async def limited(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Limit the block to `seconds`, without the `uncounted` parts; then TimeoutError, and the scope has `expired`."""
    async with asyncio.timeout(seconds) as scope:
        token = _limit.set(scope)
        try:
            yield scope
        finally:
            _limit.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """Stop the clock of the enclosing limit, if any; the remaining time is restored afterwards."""
    scope = _limit.get()
    deadline = None if scope is None else scope.when()
    if (
        scope is None or deadline is None
    ):  # no limit, or another wait under the same one has stopped its clock
        yield
        return
    clock = asyncio.get_running_loop().time
    remaining_s = deadline - clock()
    scope.reschedule(None)
    try:
        yield
    finally:
        scope.reschedule(clock() + remaining_s)
