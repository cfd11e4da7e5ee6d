"""Ours in `hindcast bench actor`: the world of a real actor, from its own browser host.

Each episode opens a world, resets it, steps through it, collects evidence and gives the window back, as an actor's
attempt does; boundary, deadlines, digests, wiping and the recycling of browsers are all in. Policy, log and judge are not.
"""

import time
from asyncio import TaskGroup
from collections import deque
from collections.abc import Sequence

import msgspec

from bench.actor_plays import Play, Tally
from hindcast.actors.environments.base import ResetResult
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.miniwob.site import MiniwobSite
from hindcast.core.domain.action import Action


async def play_worlds(host: BrowserHost, plays: Sequence[Play], *, contexts: int) -> Tally:
    """Play everything, so many episodes at a time."""
    site = MiniwobSite()
    waiting = deque(plays)
    won: list[bool] = []
    last: list[ResetResult] = []

    async def drive() -> None:
        while waiting:
            play = waiting.popleft()
            world = await host.open_world(site)
            try:
                last[:] = [await world.reset(play.task)]
                for click in play.clicks:
                    outcome = await world.step(Action(name="Click", element=click.element))
                    if outcome.done:
                        break
                evidence = await world.finish(None)
                won.append(evidence.probes["raw_reward"] > 0)
            finally:
                await world.close()

    began = time.perf_counter()
    async with TaskGroup() as group:
        for _ in range(contexts):
            group.create_task(drive())
    wall_s = time.perf_counter() - began
    return Tally(
        episodes=len(plays),
        steps=sum(len(play.clicks) for play in plays),
        won=sum(won),
        wall_s=wall_s,
        contents=contents(last[0]),
    )


def contents(start: ResetResult) -> dict[str, str]:
    """What an observation of ours holds, part by part."""
    page = start.observation.page
    return {
        "nodes": f"{len(page.nodes)} visible things in reading order, each with kind, text, value, state and number, "
        f"{len(msgspec.json.encode(page.nodes))} bytes of JSON",
        "address and title": f"{len(page.url) + len(page.title)} bytes",
        "tabs": f"{len(start.observation.tabs)}",
        "digest": "sha256 of all of it",
    }
