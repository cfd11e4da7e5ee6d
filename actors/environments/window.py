"""One browser context during an episode: its tabs, their events, and the boundary around it.

Playwright's events arrive in order and only increase counters; a waiting task compares counters. So no event between an
action and the wait for its effect is missed.

Screenshots are JPEG by Chromium itself, scaled as they are drawn, with the boxes of the numbered elements. Nothing in the
page changes. The only script that runs asks where its elements are: a page that answers wrongly spoils its own picture
alone.
"""

import asyncio
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec
from playwright.async_api import BrowserContext, CDPSession, Dialog, Frame, Request, Route
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.base import SiteTraits, WindowImage
from hindcast.actors.environments.chromium import Chromium
from hindcast.actors.environments.navigation import is_allowed, questionable
from hindcast.actors.environments.proxy import FilteringProxy
from hindcast.actors.environments.snapshot import BOXES_JS, LIMITS, page_script, script
from hindcast.core.domain.observation import Box, Mark
from hindcast.core.structs import convert, decode_json

MAX_TABS = 8
"""Most tabs of one episode; further ones are closed as they open."""

SWAP_S = 0.05
"""Pause between two attempts while a tab moves to the process of another site; the debugger learns of it late."""


class Tab:
    """One page of the context, with counts of its navigations and failures."""

    def __init__(self, page: BrowserPage) -> None:
        self.page = page
        self.title = ""
        """Title at the last snapshot; a background tab is not asked."""
        self.ended = False
        """Whether its page has ended the episode, at the last snapshot."""
        self.forgotten = -1
        """Number of navigations when its history was last dropped."""
        self.navigations = 0
        """Navigations of the main frame that committed or failed."""
        self.crashed = False
        """Whether the page's process died; then the tab can only be closed."""
        self.devtools: CDPSession | None = None
        self.failed = ""
        """Why the last navigation failed, such as `net::ERR_CONNECTION_REFUSED`; empty when it committed."""
        self.abroad = ""
        """Address outside the origins that the last navigation led to; empty when it failed for another reason."""


class Window:
    """A context with its tabs; `active` is where actions go. Made by `open_window`."""

    def __init__(
        self,
        chromium: Chromium,
        context: BrowserContext,
        *,
        origins: tuple[str, ...],
        proxy: FilteringProxy,
        reusable: bool,
        latency_s: float,
        scroll_share: float,
    ) -> None:
        self.chromium = chromium
        self.context = context
        self.origins = origins
        self.proxy = proxy
        """The proxy between the context and the network."""
        self.scroll_share = scroll_share
        """Share of its height that one scroll moves."""
        self.reusable = reusable
        """Whether it may be wiped and serve another episode of its site."""
        self.key = ""
        """`site/family` of the last episode."""
        self.tabs: list[Tab] = []
        self.active = 0
        self.blocked: list[str] = []
        """Addresses outside the origins that a tab tried to open; the code that reports them empties it."""
        self.opened = 0
        """Tabs opened by pages so far."""
        self.touched: Box | None = None
        """Visible box of the current action's element when act.js was first asked about it."""
        self.spoiled = ""
        """Why this window must not serve another episode; empty while it may."""
        self._latency_s = latency_s
        self._changed = asyncio.Event()

    @property
    def site(self) -> str:
        """Name of the site of the last episode; a window never changes it."""
        return self.key.split("/")[0]

    @property
    def tab(self) -> Tab:
        """The active tab. Raises IndexError if every page was closed."""
        return self.tabs[self.active]

    def focus(self, index: int) -> None:
        """Make another tab the active one."""
        self.active = max(0, min(index, len(self.tabs) - 1))

    async def open_tab(self) -> Tab:
        """Open a new empty tab and make it active."""
        page = await self.context.new_page()
        self.opened -= 1  # the context announced it like any other tab
        tab = next((tab for tab in self.tabs if tab.page is page), None)
        if tab is None:
            raise PlaywrightError(f"more than {MAX_TABS} tabs are open")
        self.active = self.tabs.index(tab)
        return tab

    async def change(self, happened: Callable[[], bool]) -> None:
        """Wait until an event has made the condition true. The caller bounds the wait."""
        while not happened():
            self._changed.clear()
            await self._changed.wait()

    async def forget_history(self) -> None:
        """Drop the active tab's history, so that going back cannot leave the episode. The caller bounds the wait."""
        tab = self.tab
        while tab.forgotten != tab.navigations:
            navigations = tab.navigations
            try:
                await (await self.devtools(tab)).send("Page.resetNavigationHistory")
            except PlaywrightError as error:
                if "active page" not in str(error):
                    raise
                await asyncio.sleep(SWAP_S)
            else:
                tab.forgotten = navigations

    async def stop_loading(self) -> None:
        """Stop loading in the active tab. Until then Chromium delays every evaluation in the page."""
        await (await self.devtools(self.tab)).send("Page.stopLoading")

    async def devtools(self, tab: Tab) -> CDPSession:
        """A DevTools session with a tab, for commands that Playwright lacks."""
        if tab.devtools is None:
            tab.devtools = await self.context.new_cdp_session(tab.page)
        return tab.devtools

    async def wipe(self) -> None:
        """Reduce the window to one tab without cookies and storage, ready for another episode of its site."""
        while len(self.tabs) > 1:
            await self.tabs[-1].page.close()
        self.focus(0)
        if self.tab.page.url == "about:blank":
            self.spoiled = "the site's document is gone, and with it the way to its session storage"
            return
        await self.tab.page.evaluate(
            "() => { for (const store of ['localStorage', 'sessionStorage']) "
            "{ try { window[store].clear(); } catch { /* this document has none */ } } window.name = ''; }"
        )
        served = [origin for origin in self.origins if origin.startswith("http")]
        if served:  # pages from disk have no cookies
            await self.context.clear_cookies()
            devtools = await self.devtools(self.tab)
            for origin in served:
                await devtools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        self.blocked.clear()
        self.opened = 0

    async def guard(self, script: str) -> None:
        """Attach the boundary, the listeners and the script of every document to the context."""
        # each address that reaches the route costs a round trip through the driver
        pattern = "**/*" if self._latency_s else questionable(self.origins)
        await self.context.route(pattern, self._route)
        self.context.on("page", self._page_opened)
        self.context.on("page", self._close_surplus)
        self.context.on("dialog", _answer_dialog)
        self.context.on("requestfailed", self._request_failed)
        await self.context.add_init_script(script)

    def _adopt(self, page: BrowserPage) -> Tab:
        tab = Tab(page)
        self.tabs.append(tab)
        self.active = len(self.tabs) - 1
        page.on("close", lambda _: self._closed(tab))
        page.on("crash", lambda _: self._crashed(tab))
        page.on("framenavigated", lambda frame: self._navigated(tab, frame))
        return tab

    def _page_opened(self, page: BrowserPage) -> None:
        if len(self.tabs) < MAX_TABS and all(tab.page is not page for tab in self.tabs):
            self._adopt(page)
        self.opened += 1
        self._changed.set()

    async def _close_surplus(self, page: BrowserPage) -> None:
        if all(tab.page is not page for tab in self.tabs):
            with suppress(PlaywrightError):
                await page.close()

    def _closed(self, tab: Tab) -> None:
        if tab in self.tabs:
            index = self.tabs.index(tab)
            self.tabs.remove(tab)
            if index < self.active or self.active >= len(self.tabs):
                self.active = max(0, self.active - 1)
        self._changed.set()

    def _crashed(self, tab: Tab) -> None:
        tab.navigations += 1
        tab.crashed = True
        self.spoiled = "the page's process crashed"
        self._changed.set()

    def _navigated(self, tab: Tab, frame: Frame) -> None:
        if frame.parent_frame is None:
            tab.navigations += 1
            if not frame.url.startswith("chrome-error:"):
                tab.failed = tab.abroad = ""
            self._changed.set()

    def _request_failed(self, request: Request) -> None:
        with suppress(PlaywrightError):
            if not _opens_page(request):
                return
            for tab in self.tabs:
                if tab.page is request.frame.page:
                    tab.failed = request.failure or "failed"
                    tab.abroad = "" if is_allowed(request.url, self.origins) else request.url
                    if tab.failed == "net::ERR_ABORTED":  # other failures commit an error page, which counts
                        tab.navigations += 1
                        self._changed.set()

    async def _route(self, route: Route) -> None:
        request = route.request
        with suppress(PlaywrightError):
            if is_allowed(request.url, self.origins) or request.url.startswith("data:"):
                if self._latency_s and _opens_page(request):
                    await asyncio.sleep(self._latency_s)
                await route.continue_()
                return
            self.proxy.refuse(urlsplit(request.url).netloc[:100] or request.url[:100])
            if _opens_page(request):
                self.blocked.append(request.url)
                self.spoiled = f"a page tried to go to {request.url[:200]}"
                self._changed.set()
                await route.abort("aborted")  # and the tab stays where it is
            else:
                await route.abort("blockedbyclient")  # and the page is told so


def _opens_page(request: Request) -> bool:
    """Whether a request loads the document of a tab, not of a frame in it."""
    if not request.is_navigation_request():
        return False
    try:
        return request.frame.parent_frame is None
    except PlaywrightError:
        return True  # a new tab's first document has no frame yet


async def _answer_dialog(dialog: Dialog) -> None:
    """Dismiss a dialog; leaving a page is never prevented."""
    with suppress(PlaywrightError):
        if dialog.type == "beforeunload":
            await dialog.accept()
        else:
            await dialog.dismiss()


async def open_window(
    chromium: Chromium,
    *,
    origins: tuple[str, ...],
    traits: SiteTraits,
    proxy: FilteringProxy,
    latency_s: float,
    scroll_share: float,
) -> Window:
    """Open a fresh context with one empty tab, whose pages come `latency_s` late and through `proxy`, which is not started.

    Raises Playwright's errors, and OSError when the proxy cannot listen; the caller bounds the wait.
    """
    context = await chromium.new_context(origins=origins, viewport=traits.viewport, proxy=proxy)
    window = Window(
        chromium,
        context,
        origins=origins,
        proxy=proxy,
        reusable=traits.reusable,
        latency_s=latency_s,
        scroll_share=scroll_share,
    )
    await window.guard(script("boundary.js") + page_script(traits.ended))
    if traits.init_script:
        await context.add_init_script(traits.init_script)
    await window.open_tab()
    return window


MAX_IMAGE_BYTES = 4 * 2**20
"""A larger image is not kept. Width and quality have limits, so only a window of odd proportions can exceed it."""
MAX_MARKS = int(LIMITS["nodes"])
MAX_MARKS_CHARS = 200 * MAX_MARKS
FARTHEST = 100_000
"""Coordinates beyond it are rejected."""


class _View(msgspec.Struct, frozen=True, rename="camel"):
    """The visible part of the document, in CSS pixels: `Page.getLayoutMetrics`."""

    page_x: float
    page_y: float
    client_width: float
    client_height: float


async def take_picture(window: Window, *, width: int, quality: int) -> WindowImage:
    """Photograph the active tab, at most `width` pixels wide. The caller bounds the wait; raises Playwright's errors, IndexError."""
    tab = window.tab
    marks = marks_in(await tab.page.evaluate(BOXES_JS))
    devtools = await window.devtools(tab)
    metrics = await devtools.send("Page.getLayoutMetrics")
    view = convert(metrics["cssVisualViewport"], _View)
    if view.client_width < 1 or view.client_height < 1:
        return WindowImage(missing="the window has no size")
    scale = min(1.0, width / view.client_width)
    clip = {"x": view.page_x, "y": view.page_y, "width": view.client_width, "height": view.client_height}
    screenshot = await devtools.send(
        "Page.captureScreenshot", {"format": "jpeg", "quality": quality, "clip": {**clip, "scale": scale}}
    )
    image = b64decode(screenshot["data"])
    if len(image) > MAX_IMAGE_BYTES:
        return WindowImage(missing=f"it has {len(image)} bytes, at most {MAX_IMAGE_BYTES} are kept")
    return WindowImage(
        image=image,
        width=round(scale * view.client_width),
        height=round(scale * view.client_height),
        scale=scale,
        marks=marks,
    )


def marks_in(result: object) -> tuple[Mark, ...]:
    """Parse the result of boxes.js; empty if the page returned anything else."""
    if not isinstance(result, str) or len(result) > MAX_MARKS_CHARS:
        return ()
    try:
        marks = decode_json(result, tuple[Mark, ...])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return ()
    return tuple(mark for mark in marks[:MAX_MARKS] if _is_likely(mark.box))


def box_in(result: Any) -> Box | None:
    """Parse the box of act.js; None if it is missing or implausible."""
    try:
        box = convert(result, Box)
    except msgspec.ValidationError:
        return None
    return box if _is_likely(box) else None


def _is_likely(box: Box) -> bool:
    within_limits = all(abs(number) <= FARTHEST for number in (box.x, box.y, box.width, box.height))
    return within_limits and box.width > 0 and box.height > 0
