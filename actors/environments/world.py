"""One episode in a browser: reset, steps, evidence. The `EpisodeWorld` of every environment that is a web site.

The effect of an action is a result, never an exception. When the browser or the site itself breaks, the world raises
BrowserUnavailable or EnvironmentFailed and the episode is abandoned. Every wait is bounded: an action by
`action_timeout_s`, loading or reading a page by `page_timeout_s` (invariant 10).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import msgspec
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.actions import EXECUTORS, LOADING, ActionRefused
from hindcast.actors.environments.base import (
    ResetResult,
    Site,
    StepOutcome,
    WindowImage,
    first_line,
    traits_of,
)
from hindcast.actors.environments.navigation import is_allowed
from hindcast.actors.environments.snapshot import ENDED_JS, Snapshot, observe, take_snapshot
from hindcast.actors.environments.window import Tab, Window, take_picture
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import BrowserUnavailable, EnvironmentFailed
from hindcast.core.prompts.rendering import find_renderer
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue.episode import StepResult

POPUP_WAIT_S = 2.0
"""How long a tab that a page asked for may take to appear."""
LAST_LOOK_S = 1.0
"""Time limit of one last snapshot after a page exceeded its time limit."""
TROUBLE_S = 10.0
"""Lowest time limit of a recovery call; exceeding it ends the browser, which other episodes use too."""


_KEPT_IN = ("ERR_ABORTED", "ERR_UNSAFE_REDIRECT")
"""Chromium's errors when the boundary, or Chromium itself, blocks a navigation."""


class Windows(Protocol):
    """Source of a world's window."""

    async def acquire(self, site: Site, task: Task) -> Window:
        """A window with one tab for an episode. Raises BrowserUnavailable."""
        ...

    async def release(self, window: Window) -> None:
        """Return the window, for reuse or to close it. Never raises, bounded in time."""
        ...

    async def discard(self, window: Window) -> None:
        """Kill the window's browser, which no longer answers. Never raises."""
        ...


class PageHung(Exception):
    """The page does not answer even to a last snapshot."""


class BrowserWorld:
    """An `EpisodeWorld` on a site. Used by one task at a time."""

    def __init__(self, windows: Windows, site: Site, settings: ActorSettings) -> None:
        self._windows = windows
        self._site = site
        self._settings = settings
        self._window: Window | None = None
        self._task: Task | None = None
        self._entry: BrowserPage | None = None
        """The page that entered the site: the site is asked about it, whichever tab is active."""
        self._last_observation: Observation | None = None

    async def reset(self, task: Task) -> ResetResult:
        """Enter the site. Raises EnvironmentFailed when it does not load in time, BrowserUnavailable."""
        if self._window is not None:
            await self.close()
        window = await self._windows.acquire(self._site, task)
        self._window, self._task, self._entry = window, task, None
        limit = self._settings.page_timeout_s
        patience = traits_of(self._site).patience_s or limit
        try:
            self._entry = window.tab.page
            async with asyncio.timeout(patience):
                instruction = await self._site.enter(self._entry, task)
                await window.forget_history()
            page = await self._read_page(limit)
        except (TimeoutError, PageHung, PlaywrightError, IndexError) as error:
            window.spoiled = "the page did not load"
            self._check_alive(window)
            reason = (
                "took longer than " + f"{patience:g} s"
                if isinstance(error, TimeoutError | PageHung)
                else first_line(error)
            )
            if window.proxy.trouble:
                reason += f" ({window.proxy.trouble})"
            raise EnvironmentFailed(
                f"{task.environment}/{task.family} with seed {task.seed} did not load: {reason}. "
                "Is the site running? actors.page_timeout_s is the limit."
            ) from error
        self._check_place(window, page)
        self._last_observation = self._observation(window, page)
        return ResetResult(instruction=task.instruction or instruction, observation=self._last_observation)

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Execute an action and observe. Raises only EnvironmentFailed and BrowserUnavailable."""
        window = self._entered()
        window.blocked.clear()
        window.touched = None
        began = time.perf_counter()
        result, detail = await self._act(window, action)
        acted = time.perf_counter()
        result, detail, page = await self._see(window, result, detail)
        done = await self._has_ended(window)
        self._last_observation = self._observation(window, page)
        return StepOutcome(
            result=result,
            detail=detail,
            observation=self._last_observation,
            done=done,
            act_ms=1000 * (acted - began),
            observe_ms=1000 * (time.perf_counter() - acted),
            touched=window.touched,
        )

    async def picture(self) -> WindowImage:
        """Photograph the active tab. Never raises, bounded by `screenshot_timeout_s`."""
        window = self._entered()
        limit = self._settings.screenshot_timeout_s
        if not window.tabs:
            return WindowImage(missing="no page is open")
        try:
            async with asyncio.timeout(limit):
                return await take_picture(
                    window, width=self._settings.screenshot_width, quality=self._settings.screenshot_quality
                )
        except TimeoutError:
            window.spoiled = "a screenshot did not end in time"
            return WindowImage(missing=f"it took longer than {limit:g} s (actors.screenshot_timeout_s)")
        except (PlaywrightError, IndexError) as error:
            return WindowImage(missing=first_line(error))

    async def finish(self, answer: str | None) -> Evidence:
        """Return the site's evidence, with the answer and the address. Raises EnvironmentFailed."""
        window = self._entered()
        assert self._task is not None
        assert self._entry is not None
        traits = traits_of(self._site)
        # a probe may navigate the tab
        final_url = window.tab.page.url if window.tabs else ""
        page = window.tab.page if traits.probes_active and window.tabs else self._entry
        try:
            async with asyncio.timeout(traits.patience_s or self._settings.page_timeout_s):
                probes = await self._site.probe(page, self._task)
        except (TimeoutError, PlaywrightError) as error:
            window.spoiled = "the site gave no evidence"
            self._check_alive(window)
            raise EnvironmentFailed(
                f"{self._site.name} gave no evidence at the end of the episode: {first_line(error)}"
            ) from error
        return Evidence(answer=answer, final_url=final_url, probes=probes)

    async def close(self) -> None:
        """Return the window and release the site's episode. Never raises, bounded in time."""
        window, self._window = self._window, None
        task, self._task = self._task, None
        if window is not None:
            await self._windows.release(window)
        if task is not None:
            with suppress(PlaywrightError, OSError, TimeoutError, EnvironmentFailed):
                async with asyncio.timeout(self._settings.action_timeout_s):
                    await self._site.leave(task)

    async def _has_ended(self, window: Window) -> bool:
        """Whether the page that entered the site has ended the episode; False if it cannot be asked."""
        if window.tabs and window.tab.page is self._entry:
            return window.tab.ended
        with suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(self._settings.action_timeout_s):
                return self._entry is not None and bool(await self._entry.evaluate(ENDED_JS))
        return False

    def _entered(self) -> Window:
        if self._window is None:
            raise EnvironmentFailed("The world was used before reset or after close.")
        return self._window

    # ---- acting -----------------------------------------------------------------------------------------------------

    async def _act(self, window: Window, action: Action | ParseFailure) -> tuple[StepResult, str]:
        if isinstance(action, ParseFailure):
            return "parse_failure", action.reason
        if action.name == "exit":
            return "exit", ""
        limit = self._settings.page_timeout_s if action.name in LOADING else self._settings.action_timeout_s
        if not window.tabs:
            self._check_alive(window)
            return "page_closed", f"the page had closed itself before {action.name}"
        tab = window.tab
        try:
            async with asyncio.timeout(limit):
                await EXECUTORS[action.name](window, action)
        except ActionRefused as refused:
            return refused.result, refused.detail
        except TimeoutError:
            window.spoiled = "an action did not end in time"
            return "timeout", f"{action.name} took longer than {limit:g} s"
        except (PlaywrightError, IndexError) as error:
            self._check_alive(window)
            if tab not in window.tabs:
                return "page_closed", f"the page closed during {action.name}"
            if (
                window.blocked
                or "interrupted by another navigation" in str(error)
                or "context was destroyed" in str(error)
            ):
                return "ok", ""
            return "not_actionable", first_line(error)
        return "ok", ""

    # ---- seeing -----------------------------------------------------------------------------------------------------

    async def _see(self, window: Window, result: StepResult, detail: str) -> tuple[StepResult, str, Page]:
        """The page after an action, wherever it led. A hung page is closed, a foreign one left."""
        limit = self._settings.action_timeout_s if result == "timeout" else self._settings.page_timeout_s
        for _ in range(3):
            if not window.tabs:
                await self._bounded(window, window.open_tab)
                if result == "ok":
                    result, detail = "page_closed", "the page closed itself"
            try:
                page = await self._read_page(limit)
            except PageHung:
                result, detail = "page_closed", f"the page did not answer for {limit:g} s and was closed"
                window.spoiled = detail
                await self._bounded(window, window.tab.page.close)
                continue
            except (PlaywrightError, IndexError) as error:
                self._check_alive(window)
                if window.tabs and window.tab.crashed:
                    await self._bounded(window, window.tab.page.close)
                    result, detail = "page_closed", "the page's process crashed"
                elif result == "ok":
                    result, detail = "page_closed", first_line(error)
                continue
            if window.blocked:
                result = "navigation_blocked"
                detail = _outside(window.blocked[0], window)
            for tab in _foreign(window):
                result, detail = "navigation_blocked", _outside(tab.page.url, window)
                window.spoiled = detail
                if tab is window.tab:
                    page = msgspec.structs.replace(page, url=tab.page.url)  # the page may lie
                else:
                    await self._bounded(window, tab.page.close)
            if is_allowed(page.url, window.origins):
                return result, detail, page
            result, detail = await self._leave_foreign(window, page, detail)
        raise EnvironmentFailed(f"{self._site.name} shows no page that can be read: {detail}")

    async def _leave_foreign(self, window: Window, page: Page, detail: str) -> tuple[StepResult, str]:
        """Leave a page outside the origins, or raise EnvironmentFailed if the site itself failed."""
        tab = window.tab
        if (
            page.url.startswith("chrome-error:")
            and not window.blocked
            and not tab.abroad
            and not any(word in tab.failed for word in _KEPT_IN)
        ):
            reason = window.proxy.trouble or tab.failed or "the page is an error page"
            raise EnvironmentFailed(f"{self._site.name} did not answer: {reason}.")
        window.spoiled = f"it showed {page.url[:200]}"
        detail = detail or _outside(tab.abroad or page.url, window)
        if len(window.tabs) > 1:
            await self._bounded(window, tab.page.close)
        else:
            back = self._last_observation.page.url if self._last_observation is not None else "about:blank"
            await self._bounded(window, lambda: tab.page.goto(back, wait_until="commit"))
        return "navigation_blocked", detail

    async def _read_page(self, limit_s: float) -> Page:
        """A snapshot of the active tab once it has settled. Raises PageHung, Playwright's errors, EnvironmentFailed."""
        window = self._entered()
        try:
            async with asyncio.timeout(limit_s):
                return await self._settled(window)
        except TimeoutError:
            pass
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                await window.stop_loading()
                snapshot = await self._snapshot(window.tab, stay=True)
        except TimeoutError:
            raise PageHung from None
        if snapshot.page is None:
            raise PageHung
        return _noted(window.tab, snapshot, snapshot.page)

    async def _snapshot(self, tab: Tab, *, stay: bool) -> Snapshot:
        return await take_snapshot(
            tab.page, stay=stay, outline=find_renderer(self._settings.renderer).needs_outline
        )

    async def _settled(self, window: Window) -> Page:
        """Follow navigations and new tabs until there is a page to read."""
        stay = False
        while True:
            tab, navigations, opened = window.tab, window.tab.navigations, window.opened
            try:
                snapshot = await self._snapshot(tab, stay=stay)
            except PlaywrightError as error:
                if tab not in window.tabs or not _lost_document(error):
                    raise
                await tab.page.wait_for_load_state("domcontentloaded")
                continue
            if snapshot.opened and window.opened == opened and window.tab is tab:
                await self._wait_for(window, partial(_has_opened, window, opened))
            if window.tab is not tab:
                continue
            if snapshot.page is not None:
                return _noted(tab, snapshot, snapshot.page)
            await window.change(partial(_has_moved, window, tab, navigations))
            stay = bool(tab.failed)

    async def _wait_for(self, window: Window, happened: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POPUP_WAIT_S):
                await window.change(happened)

    async def _bounded(self, window: Window, call: Callable[[], Awaitable[object]]) -> None:
        """Run a recovery call. When it hangs, the browser hangs too: kill it."""
        try:
            async with asyncio.timeout(max(TROUBLE_S, self._settings.action_timeout_s)):
                await call()
        except TimeoutError as error:
            await self._windows.discard(window)
            raise BrowserUnavailable("Chromium no longer answers and was killed.") from error
        except PlaywrightError as error:
            self._check_alive(window)
            if not _lost_document(error) and "net::" not in str(error):
                raise EnvironmentFailed(f"{self._site.name}: {first_line(error)}") from error

    def _observation(self, window: Window, page: Page) -> Observation:
        return observe(page, tabs=tuple(tab.title for tab in window.tabs), active_tab=window.active)

    def _check_place(self, window: Window, page: Page) -> None:
        if not is_allowed(page.url, window.origins):
            window.spoiled = f"it started on {page.url[:200]}"
            raise EnvironmentFailed(
                f"{self._site.name} starts on {page.url[:200]}, outside its own origins {', '.join(window.origins)}."
            )

    def _check_alive(self, window: Window) -> None:
        if not window.chromium.alive:
            raise BrowserUnavailable(
                "Chromium ended in the middle of an episode. A new one starts with the next episode."
            )


def _noted(tab: Tab, snapshot: Snapshot, page: Page) -> Page:
    tab.title, tab.ended = page.title, snapshot.ended
    return page


def _has_opened(window: Window, opened: int) -> bool:
    return window.opened != opened or bool(window.blocked)


def _has_moved(window: Window, tab: Tab, navigations: int) -> bool:
    return tab.navigations != navigations or tab not in window.tabs


def _lost_document(error: PlaywrightError) -> bool:
    """Whether an evaluation failed only because its document was replaced."""
    text = str(error)
    return any(words in text for words in ("context was destroyed", "navigation", "Frame was detached"))


def _foreign(window: Window) -> list[Tab]:
    """Tabs that show an address outside the origins, according to the browser; error pages do not count."""
    urls = [(tab, tab.page.url) for tab in window.tabs]
    return [
        tab
        for tab, url in urls
        if not url.startswith("chrome-error:") and not is_allowed(url, window.origins)
    ]


def _outside(url: str, window: Window) -> str:
    return f"{url[:200]} is outside {', '.join(window.origins)}"
