"""Plays MiniWoB++ in a real Chromium: the demonstrators' episodes and what they left."""

import asyncio
from collections.abc import Sequence

import msgspec

from actors.environments.browser import BrowserHost
from actors.environments.demonstrator import DEMONSTRATORS
from actors.environments.miniwob.evaluators import evaluate
from actors.environments.miniwob.site import MiniwobSite
from core.action import Action
from core.evidence import Evidence
from core.observation import Page
from core.task import Task

AT_ONCE = 4


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode left; one without a demonstrator ends with its first page."""

    instruction: str
    digests: tuple[str, ...]
    """Of every page, from the first."""
    results: tuple[str, ...]
    page: Page
    """The last one."""
    evidence: Evidence

    def won(self, task: Task) -> bool:
        """What the evaluator says."""
        return evaluate(task, self.evidence).outcome == "success"


async def play(host: BrowserHost, site: MiniwobSite, task: Task) -> Played:
    """The demonstrator's episode."""
    demonstrate = DEMONSTRATORS.get((task.environment, task.family))
    world = await host.open_world(site)
    try:
        start = await world.reset(task)
        observation = start.observation
        digests, actions = [observation.digest], list[Action]()
        results: list[str] = []
        for _ in range(task.max_steps if demonstrate else 0):
            assert demonstrate is not None
            action = demonstrate(task, start.instruction, observation, actions)
            outcome = await world.step(action)
            actions.append(action)
            results.append(outcome.result)
            observation = outcome.observation
            digests.append(observation.digest)
            if outcome.done or outcome.result == "exit":
                break
        return Played(
            instruction=start.instruction,
            digests=tuple(digests),
            results=tuple(results),
            page=observation.page,
            evidence=await world.finish(None),
        )
    finally:
        await world.close()


async def play_all(host: BrowserHost, site: MiniwobSite, tasks: Sequence[Task]) -> list[Played]:
    """Several at once, in the tasks' order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(task: Task) -> Played:
        async with slots:
            return await play(host, site, task)

    return await asyncio.gather(*map(one, tasks))
