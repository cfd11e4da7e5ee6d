"""The servers that an engine asks: which one next, which are left alone for a while, and what is said of their troubles.

    sound ──failed──> alone for a while, longer each time ──> shows its weights ──> asked again ──answered──> sound

Of each stretch of trouble of a server one fact is recorded, when it begins; it is over with the next answer. A server that
stays behind with its weights may hold what it was asked for ever, paused as it is: those questions are taken back and go to
the others.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import structlog

from actors.engines.routing import preferred
from actors.engines.vllm.server import ServerTroubled, VllmServer
from events.catalogue import PolicyServerTroubled

LONGEST_BACKOFF_S = 10.0

Tell = Callable[[PolicyServerTroubled], Awaitable[None]]

logger = structlog.get_logger(__name__)


class _Member:
    """One server and how it fares."""

    def __init__(self, server: VllmServer) -> None:
        self.server = server
        self.failures = 0
        """In a row."""
        self.free_at = 0.0
        """When it may be asked again, by the loop's clock."""
        self.under_way: set[asyncio.Timeout] = set()
        """What it is asked at present; each ends when its time is up."""


class Fleet:
    """Servers by their addresses, which may change while it is used."""

    def __init__(
        self,
        addresses: Callable[[], Sequence[str]],
        *,
        backoff_s: float,
        tell: Tell,
        random: Random | None = None,
    ) -> None:
        """`addresses`: where servers are now; `random` spreads the tries of several askers."""
        self._addresses = addresses
        self._backoff_s = backoff_s
        self._tell = tell
        self._random = random or Random()
        self._members: dict[str, _Member] = {}

    async def close(self) -> None:
        """Close all connections."""
        for member in self._members.values():
            await member.server.close()
        self._members.clear()

    def servers(self) -> list[VllmServer]:
        """All of them."""
        return [self._member(address).server for address in self._addresses()]

    async def next_for(self, key: str) -> VllmServer:
        """The server to ask for this key; waits while all are left alone."""
        while True:
            now = asyncio.get_running_loop().time()
            members = [self._member(address) for address in preferred(key, self._addresses())]
            for member in members:
                if member.free_at <= now:
                    return member.server
            soonest = min((member.free_at for member in members), default=now + self._backoff_s)
            await asyncio.sleep(soonest - now)

    def is_sound(self, server: VllmServer) -> bool:
        """Whether it is in no stretch of trouble. One that is must show its weights before it is asked again."""
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
        member = self._member(server.address)
        member.failures, member.free_at = 0, 0.0

    async def failed(self, server: VllmServer, trouble: ServerTroubled) -> None:
        """It gave none: leave it alone for a while, longer each time in a row."""
        member = self._member(server.address)
        now = asyncio.get_running_loop().time()
        if now < member.free_at:
            return  # asked before it was left alone: the same failure
        pause_s = min(LONGEST_BACKOFF_S, self._backoff_s * 2 ** min(member.failures, 16))
        member.failures += 1
        member.free_at = now + pause_s * self._random.uniform(0.5, 1.0)
        if member.failures == 1:
            logger.warning("a policy server is in trouble", trouble=trouble.trouble, detail=str(trouble))
            await self._tell(
                PolicyServerTroubled(server=server.address, trouble=trouble.trouble, detail=str(trouble))
            )

    def _member(self, address: str) -> _Member:
        known = self._members.get(address)
        if known is None:
            known = self._members[address] = _Member(VllmServer(address))
        return known
