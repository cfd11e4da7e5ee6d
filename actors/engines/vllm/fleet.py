"""The servers of an engine: which one is next, which are set aside for a while, and the events about their troubles.

    sound ──failed──> set aside, longer each time ──> shows its weights ──> asked again ──answered──> sound

Checks of a server set aside run concurrently with requests to the others, so a hanging server delays none. The pause
between two checks is `backoff_s`, doubled each time, at most `LONGEST_BACKOFF_S`.

One event per server and period of trouble is recorded, when it begins; the next answer ends it. A paused server that
stays behind with its weights may hold its requests forever, so they are cancelled and sent to the others.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from random import Random
from typing import Self

import structlog

from hindcast.actors.engines.base import preferred
from hindcast.actors.engines.vllm.server import ServerTroubled, VllmServer
from hindcast.events.catalogue import PolicyServerTroubled

LONGEST_BACKOFF_S = 10.0

Check = Callable[[VllmServer], Awaitable[None]]
"""Returns only if a server has weights that may be sampled from; raises ServerTroubled."""
Tell = Callable[[PolicyServerTroubled], Awaitable[None]]

logger = structlog.get_logger(__name__)


class _Member:
    """One server and its health."""

    def __init__(self, server: VllmServer) -> None:
        self.server = server
        self.failures = 0
        """Failures in a row."""
        self.free_at = 0.0
        """When it may be checked again, by the loop's clock."""
        self.alone = False
        """Whether it gets no requests until it shows its weights."""
        self.under_way: set[asyncio.Timeout] = set()
        """Its current requests, as timeouts that cancel them."""


class Fleet:
    """Servers by their addresses, which may change during use; an async context manager."""

    def __init__(
        self,
        addresses: Callable[[], Sequence[str]],
        *,
        backoff_s: float,
        check: Check,
        tell: Tell,
        random: Random | None = None,
    ) -> None:
        """`addresses`: returns the servers' current addresses. `random`: spreads the checks of several engines."""
        self._addresses = addresses
        self._backoff_s = backoff_s
        self._check = check
        self._tell = tell
        self._random = random or Random()
        self._members: dict[str, _Member] = {}

        self._check_group = asyncio.TaskGroup()
        self._check_tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._check_group.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Close all connections."""
        for task in self._check_tasks:
            task.cancel()
        await self._check_group.__aexit__(None, None, None)  # the caller's errors belong in no group
        for member in self._members.values():
            await member.server.close()
        self._members.clear()

    def servers(self) -> list[VllmServer]:
        """All servers."""
        return [self._member(address).server for address in self._addresses()]

    async def next_for(self, key: str) -> VllmServer:
        """The server to ask for this key; waits while all are set aside."""
        while True:
            for address in preferred(key, self._addresses()):
                if not (member := self._member(address)).alone:
                    return member.server
            await asyncio.sleep(self._backoff_s)

    def is_sound(self, server: VllmServer) -> bool:
        """Whether the server is in no period of trouble."""
        return self._member(server.address).failures == 0

    @asynccontextmanager
    async def asking(self, server: VllmServer) -> AsyncIterator[None]:
        """Context of one request to a server. Raises ServerTroubled when the request is cancelled."""
        member = self._member(server.address)
        limit = asyncio.timeout(None)
        try:
            async with limit:
                member.under_way.add(limit)
                try:
                    yield
                finally:
                    member.under_way.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ServerTroubled("behind", f"{server.address} was left aside while it was asked") from None

    async def leave_aside(self, server: VllmServer, trouble: ServerTroubled) -> None:
        """Note a failure of a server and cancel its requests."""
        under_way = self._member(server.address).under_way
        now_s = asyncio.get_running_loop().time()
        for limit in under_way:
            limit.reschedule(now_s)  # seen after `note_failure` has set the server aside, before it waits
        under_way.clear()
        await self.note_failure(server, trouble)

    def served(self, server: VllmServer) -> None:
        """Note a usable answer of a server."""
        self._member(server.address).failures = 0

    async def note_failure(self, server: VllmServer, trouble: ServerTroubled) -> None:
        """Note a failure: set the server aside, longer each time in a row, until it shows its weights."""
        member = self._member(server.address)
        if member.alone:
            return  # asked before it was set aside: the same failure
        member.alone = True
        self._put_off(member)
        task = self._check_group.create_task(self._win_back(member), context=Context())
        self._check_tasks.add(task)
        task.add_done_callback(self._check_tasks.discard)
        if member.failures == 1:
            logger.warning("a policy server is in trouble", trouble=trouble.trouble, detail=str(trouble))
            await self._tell(
                PolicyServerTroubled(server=server.address, trouble=trouble.trouble, detail=str(trouble))
            )

    def _put_off(self, member: _Member) -> None:
        pause_s = min(LONGEST_BACKOFF_S, self._backoff_s * 2 ** min(member.failures, 16))
        member.failures += 1
        member.free_at = asyncio.get_running_loop().time() + pause_s * self._random.uniform(0.5, 1.0)

    async def _win_back(self, member: _Member) -> None:
        """Check a server set aside until it may be asked again."""
        while member.alone:
            await asyncio.sleep(member.free_at - asyncio.get_running_loop().time())
            if member.server.address not in self._addresses():
                # it has moved; another process may have its address
                self._put_off(member)
                continue
            try:
                await self._check(member.server)
            except ServerTroubled:
                self._put_off(member)
            else:
                member.alone = False

    def _member(self, address: str) -> _Member:
        member = self._members.get(address)
        if member is None:
            member = self._members[address] = _Member(VllmServer(address))
        return member
