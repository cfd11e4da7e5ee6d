"""Which servers an engine looks at: those that are listed, and no address that one of them has left."""

import asyncio

from hindcast.actors.engines.base import preferred
from hindcast.actors.engines.vllm.fleet import Fleet
from hindcast.actors.engines.vllm.server import ServerTroubled, VllmServer
from hindcast.events.catalogue import PolicyServerTroubled

OLD, OTHER = "http://127.0.0.1:1", "http://127.0.0.1:2"


async def test_an_address_that_a_server_has_left_is_looked_at_again_only_when_one_is_there_again() -> None:
    listed, sound = [OLD, OTHER], set[str]()
    looks = {OLD: 0, OTHER: 0}

    async def look(server: VllmServer) -> None:
        looks[server.address] += 1
        if server.address not in sound:
            raise ServerTroubled("unreachable", "nobody answers")

    async def tell(_: PolicyServerTroubled) -> None:
        pass

    async def looked_at(address: str, times: int) -> None:
        while looks[address] < times:  # noqa: ASYNC110 - no event says that it looked
            await asyncio.sleep(0.001)

    key = next(name for name in map(str, range(100)) if preferred(name, listed)[0] == OLD)
    fleet = Fleet(lambda: tuple(listed), backoff_s=0.001, check=look, tell=tell)
    async with asyncio.timeout(120), fleet:
        for server in fleet.servers():
            await fleet.note_failure(server, ServerTroubled("unreachable", "nobody answers"))
        await looked_at(OLD, 1)
        listed.remove(OLD)
        before = looks[OLD]
        await looked_at(OTHER, looks[OTHER] + 6)
        assert looks[OLD] == before, "a look that was under way is counted already"
        listed.insert(0, OLD)
        sound.add(OLD)
        assert (await fleet.next_for(key)).address == OLD
    assert looks[OLD] == before + 1
