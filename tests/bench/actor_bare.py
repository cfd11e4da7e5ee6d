"""The limit of `hindcast bench actor`: the leanest loop that Playwright allows for the same observations.

Nothing of ours but the scripts inside the page: no boundary, no deadlines, no wiping, no digest, no evidence. It keeps
its pages open for good, reads the observation and the end of the episode in one round trip, and acts by the numbers of
the observation, as whoever reads it does.
"""

import time
from asyncio import TaskGroup
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from playwright.async_api import Page as BrowserPage
from playwright.async_api import async_playwright

from bench.actor_plays import Click, Play, Tally, problems
from hindcast.actors.environments.chromium import FLAGS, find_browser
from hindcast.actors.environments.miniwob.site import MiniwobSite
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.actors.environments.snapshot import ACT_JS, Snapshot, observe, page_script, take_snapshot
from hindcast.core.domain.action import Action
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed

WON_JS = "() => window.WOB_RAW_REWARD_GLOBAL > 0"


class BarePage:
    """One page that plays one episode after the other."""

    def __init__(self, page: BrowserPage, site: MiniwobSite) -> None:
        self._page = page
        self._site = site

    async def begin(self, task: Task) -> tuple[str, Snapshot]:
        """Start a problem: instruction and first observation."""
        instruction = await self._site.enter(self._page, task)
        return instruction, await take_snapshot(self._page)

    async def locate(self, element: int) -> dict[str, Any]:
        """Where the element of the last observation is to be clicked."""
        found: dict[str, Any] = await self._page.evaluate(
            ACT_JS, {"id": element, "way": "point", "option": ""}
        )
        return found

    async def click(self, element: int) -> Snapshot:
        """Click an element and observe."""
        point = await self.locate(element)
        await self._page.mouse.click(point["x"], point["y"])
        return await take_snapshot(self._page)

    async def won(self) -> bool:
        """Whether the page gave a reward."""
        return bool(await self._page.evaluate(WON_JS))


@asynccontextmanager
async def bare_pages(count: int, *, browser_path: str = "") -> AsyncIterator[list[BarePage]]:
    """So many pages, each in a context of its own, in one browser."""
    site = MiniwobSite()
    width, height = site.traits.viewport
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=find_browser(browser_path), args=list(FLAGS))
        pages = []
        for _ in range(count):
            context = await browser.new_context(viewport={"width": width, "height": height})
            await context.add_init_script(page_script(site.traits.ended))
            await context.add_init_script(site.traits.init_script)
            pages.append(BarePage(await context.new_page(), site))
        try:
            yield pages
        finally:
            await browser.close()


async def play_bare(pages: Sequence[BarePage], plays: Sequence[Play]) -> Tally:
    """Play everything, one episode per page at a time."""
    waiting = deque(plays)
    won: list[bool] = []

    async def drive(page: BarePage) -> None:
        while waiting:
            play = waiting.popleft()
            await page.begin(play.task)
            for click in play.clicks:
                found = await page.click(click.element)
                if found.ended:
                    break
            won.append(await page.won())

    began = time.perf_counter()
    async with TaskGroup() as group:
        for page in pages:
            group.create_task(drive(page))
    wall_s = time.perf_counter() - began
    return Tally(
        episodes=len(plays), steps=sum(len(play.clicks) for play in plays), won=sum(won), wall_s=wall_s
    )


async def record(page: BarePage, count: int) -> list[Play]:
    """Let the demonstrators play so many problems, and note what they clicked.

    Raises EnvironmentFailed when a demonstrator wants anything but a click, or does not win.
    """
    return [await _record(page, task, gym_seed) for task, gym_seed in problems(count)]


async def _record(page: BarePage, task: Task, gym_seed: int) -> Play:
    demonstrate = DEMONSTRATORS[task.environment, task.family]
    instruction, found = await page.begin(task)
    actions: list[Action] = []
    clicks: list[Click] = []
    while not found.ended and found.page is not None and len(actions) < task.max_steps:
        action = demonstrate(task, instruction, observe(found.page), actions)
        if action.name != "Click" or action.element is None:
            break
        point = await page.locate(action.element)
        clicks.append(Click(element=action.element, x=point["x"], y=point["y"]))
        actions.append(action)
        found = await page.click(action.element)
    if not found.ended or not await page.won():
        raise EnvironmentFailed(
            f"{task.family} with seed {task.seed} was not won by clicks alone: {msgspec.to_builtins(actions)}"
        )
    return Play(task=task, gym_seed=gym_seed, clicks=tuple(clicks))
