"""Plays MiniWoB++ in a real Chromium: the demonstrators' episodes and what they left."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.miniwob.site import MiniwobSite
from hindcast.actors.environments.miniwob.tasks import evaluate
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task

AT_ONCE = 4


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode left; one without a demonstrator, or that is only started, ends with its first page."""

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
    return await _play(host, site, task, task.max_steps)


async def start(host: BrowserHost, site: MiniwobSite, task: Task) -> Played:
    """An episode's first page."""
    return await _play(host, site, task, 0)


async def _play(host: BrowserHost, site: MiniwobSite, task: Task, max_steps: int) -> Played:
    demonstrate = DEMONSTRATORS.get((task.environment, task.family))
    world = await host.open_world(site)
    try:
        start = await world.reset(task)
        observation = start.observation
        digests, actions = [observation.digest], list[Action]()
        results: list[str] = []
        for _ in range(max_steps if demonstrate else 0):
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
    return await _each(tasks, lambda task: play(host, site, task))


async def start_all(host: BrowserHost, site: MiniwobSite, tasks: Sequence[Task]) -> list[Played]:
    """The first pages of several at once, in the tasks' order."""
    return await _each(tasks, lambda task: start(host, site, task))


async def _each(tasks: Sequence[Task], call: Callable[[Task], Awaitable[Played]]) -> list[Played]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(task: Task) -> Played:
        async with slots:
            return await call(task)

    return await asyncio.gather(*map(one, tasks))


class Sweep:
    """Demonstrators' episodes, each played once, however many tests look at it."""

    def __init__(self, host: BrowserHost) -> None:
        self._host = host
        self._played: dict[tuple[str, int], Played] = {}

    async def play(self, tasks: Sequence[Task]) -> list[Played]:
        """What the tasks' episodes left, in the tasks' order."""
        missing = [task for task in tasks if (task.family, task.seed) not in self._played]
        for task, played in zip(missing, await play_all(self._host, MiniwobSite(), missing), strict=True):
            self._played[task.family, task.seed] = played
        return [self._played[task.family, task.seed] for task in tasks]
