"""How far back a log is read: for showing that a start does not depend on the length of history."""

from collections.abc import AsyncGenerator
from typing import Any

from hindcast.events.envelope import Stored


def watch_reads(log: Any) -> list[int]:
    """From now on, the position after which each read or tail of this log begins; single looks are left out."""
    seen: list[int] = []
    read, tail = log.read, log.tail

    async def watched_read(*, after: int, limit: int) -> list[Stored]:
        if limit > 1:
            seen.append(after)
        return await read(after=after, limit=limit)

    def watched_tail(*, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        seen.append(after)
        return tail(after=after, headers=headers)

    log.read, log.tail = watched_read, watched_tail
    return seen
