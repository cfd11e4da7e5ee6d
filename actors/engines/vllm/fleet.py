"""The servers that an engine asks: which one next, which are left alone for a while, and what is said of their troubles.

    sound ──failed──> alone for a while, longer each time ──> shows its weights ──> asked again ──answered──> sound

A server that is left alone is looked at beside the questions, which go to the others: one that hangs holds none of them up.
Waits between two looks at it (`backoff_s`, doubled each time, `LONGEST_BACKOFF_S` at most).

Of each stretch of trouble of a server one fact is recorded, when it begins; it is over with the next answer. A server that
stays behind with its weights may hold what it was asked for ever, paused as it is: those questions are taken back and go to
the others.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from random import Random
from typing import Self

import structlog

from hindcast.actors.engines.server_choice import preferred
from hindcast.actors.engines.vllm.server import ServerTroubled, VllmServer
from hindcast.events.catalogue import PolicyServerTroubled

LONGEST_BACKOFF_S = 10.0

Look = Callable[[VllmServer], Awaitable[None]]
"""Returns where a server has weights that may be sampled from; raises ServerTroubled."""
Tell = Callable[[PolicyServerTroubled], Awaitable[None]]

logger = structlog.get_logger(__name__)


class _Member:
    """One server and how it fares."""

    def __init__(self, server: VllmServer) -> None:
        self.server = server
        self.failures = 0
        """In a row."""
        self.free_at = 0.0
        """When it may be looked at again, by the loop's clock."""
        self.alone = False
        """Whether it is asked nothing until it shows its weights."""
        self.under_way: set[asyncio.Timeout] = set()
        """What it is asked at present; each ends when its time is up."""


class Fleet:
    """Servers by their addresses, which may change while it is used; an async context manager."""

    def __init__(
        self,
        addresses: Callable[[], Sequence[str]],
        *,
        backoff_s: float,
        look: Look,
        tell: Tell,
        random: Random | None = None,
    ) -> None:
        """`addresses`: where servers are now; `random` spreads the looks of several askers."""
        self._addresses = addresses
        self._backoff_s = backoff_s
        self._look = look
        self._tell = tell
        self._random = random or Random()
        self._members: dict[str, _Member] = {}

        self._looking = asyncio.TaskGroup()
        self._looks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._looking.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Close all connections."""
        for task in self._looks:
            task.cancel()
        await self._looking.__aexit__(None, None, None)  # an error of whoever asks is theirs, and in no group
        for member in self._members.values():
            await member.server.close()
        self._members.clear()

    def servers(self) -> list[VllmServer]:
        """All of them."""
        return [self._member(address).server for address in self._addresses()]

    async def next_for(self, key: str) -> VllmServer:
        """The server to ask for this key; waits while all are left alone."""
        while True:
            for address in preferred(key, self._addresses()):
                if not (member := self._member(address)).alone:
                    return member.server
            await asyncio.sleep(self._backoff_s)

    def is_sound(self, server: VllmServer) -> bool:
        """Whether it is in no stretch of trouble."""
        return self._member(server.address).failures == 0

    @asynccontextmanager
    async def asking(self, server: VllmServer) -> AsyncIterator[None]:
        """While something is asked of it. Raises ServerTroubled when that is taken back."""
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
        """It failed, and what it is asked is taken back."""
        under_way = self._member(server.address).under_way
        now = asyncio.get_running_loop().time()
        for limit in under_way:
            limit.reschedule(now)  # seen after `failed` has set the server aside, before it waits
        under_way.clear()
        await self.failed(server, trouble)

    def served(self, server: VllmServer) -> None:
        """It gave an answer that could be used."""
        self._member(server.address).failures = 0

    async def failed(self, server: VllmServer, trouble: ServerTroubled) -> None:
        """It gave none: leave it alone for a while, longer each time in a row, and until it shows its weights."""
        member = self._member(server.address)
        if member.alone:
            return  # asked before it was left alone: the same failure
        member.alone = True
        self._put_off(member)
        task = self._looking.create_task(self._win_back(member), context=Context())
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)
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
        """Look at a server that is left alone until it may be asked again."""
        while member.alone:
            await asyncio.sleep(member.free_at - asyncio.get_running_loop().time())
            if member.server.address not in self._addresses():
                # it has moved, and who is there now is none of ours
                self._put_off(member)
                continue
            try:
                await self._look(member.server)
            except ServerTroubled:
                self._put_off(member)
            else:
                member.alone = False

    def _member(self, address: str) -> _Member:
        known = self._members.get(address)
        if known is None:
            known = self._members[address] = _Member(VllmServer(address))
        return known
