"""Concurrent checks of which weights servers have: one hanging server delays no check of another.

A turn waits up to `POLL_S` for its checks; a slower check runs on during the following turns.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from hindcast.actors.engines.vllm.server import ServerTroubled, VllmServer

POLL_S = 0.2
"""Pause between two checks which weights a server has."""

Shown = int | ServerTroubled | None
"""A version (-1: weights of another run); or why a server shows none; or None: its first check is running."""


class ServerChecks:
    """Repeated checks; an async context manager that cancels running checks at its end."""

    def __init__(
        self, servers: Callable[[], Sequence[VllmServer]], look: Callable[[VllmServer], Awaitable[int]]
    ) -> None:
        """`look` raises ServerTroubled."""
        self._servers = servers
        self._look = look
        self._tasks = asyncio.TaskGroup()
        self._under_way: dict[VllmServer, asyncio.Task[None]] = {}
        self._shown: dict[VllmServer, Shown] = {}

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._under_way.values():
            task.cancel()
        await self._tasks.__aexit__(None, None, None)  # the caller's errors belong in no group

    async def turn(self) -> dict[VllmServer, Shown]:
        """Start a check of every server without a running one; return each server's latest result."""
        servers = self._servers()
        for server in servers:
            if server not in self._under_way:
                self._under_way[server] = self._tasks.create_task(self._note(server))
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=POLL_S)
        return {server: self._shown.get(server) for server in servers}

    async def _note(self, server: VllmServer) -> None:
        try:
            self._shown[server] = await self._look(server)
        except ServerTroubled as trouble:
            self._shown[server] = trouble
        finally:
            del self._under_way[server]
