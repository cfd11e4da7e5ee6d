"""The browser host of an actor: one Chromium with a context per episode, replaced when it ages or breaks.

At most one Chromium accepts new episodes; a replaced one serves its running episodes to their end.
"""

import asyncio
from types import TracebackType
from typing import Self

import structlog
from playwright.async_api import Error as PlaywrightError

from hindcast.actors.environments.base import Browserless, EpisodeWorld, Site, SiteTraits, Venue, traits_of
from hindcast.actors.environments.chromium import CLOSE_TIMEOUT_S, Chromium
from hindcast.actors.environments.proxy import FilteringProxy, Resolver, networks, system_resolver
from hindcast.actors.environments.window import Window, open_window
from hindcast.actors.environments.world import BrowserWorld
from hindcast.core.domain.task import Task
from hindcast.core.errors import BrowserUnavailable
from hindcast.core.settings.schema import ActorSettings

MEMORY_CHECK_EPISODES = 30
"""Episodes between two checks of the browser's memory."""

_log = structlog.get_logger(__name__)


class BrowserHost:
    """Opens worlds: `async with BrowserHost(settings) as host: world = await host.open_world(site)`."""

    def __init__(
        self,
        settings: ActorSettings,
        *,
        resolver: Resolver = system_resolver,
        headed: bool = False,
        at_once: bool = True,
    ) -> None:
        """`headed`: show the browser in a window on the screen. `at_once`: start it now, or only when a world needs it."""
        self._at_once = at_once
        self._settings = settings
        self._private = networks(settings.private_networks)
        self._resolver = resolver
        self._headed = headed
        self._starting = asyncio.Lock()
        self._current: Chromium | None = None
        self._busy: dict[Chromium, set[object]] = {}
        """Windows in use or being opened, by browser."""
        self._idle: list[Window] = []
        """Wiped windows of the current browser, the longest idle first."""

    async def __aenter__(self) -> Self:
        if self._at_once:
            await self._chromium()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for chromium in list(self._busy):
            await self._end(chromium)

    async def open_world(self, site: Venue) -> EpisodeWorld:
        """Open a world on a site; `reset` makes its context. A `Browserless` site opens its own world. Raises
        BrowserUnavailable.
        """
        if isinstance(site, Browserless):
            return site.open_world()
        await self._chromium()
        return BrowserWorld(self, site, self._settings)

    # ---- windows ----------------------------------------------------------------------------------------------------

    async def acquire(self, site: Site, task: Task) -> Window:
        """A window for an episode: an idle one of the same site if it may be reused, else a fresh context.

        Raises BrowserUnavailable.
        """
        chromium = await self._chromium()
        chromium.episodes += 1
        traits, origins = traits_of(site), site.origins(task)
        key = f"{site.name}/{task.family}"
        window = self._take_idle(site.name, key, origins) if traits.reusable else None
        if window is None:
            window = await self._opened(chromium, origins, traits)
        window.key = key
        if chromium not in self._busy:
            raise BrowserUnavailable("Chromium ended while a window was opened.")
        self._busy[chromium].add(window)
        return window

    async def _opened(self, chromium: Chromium, origins: tuple[str, ...], traits: SiteTraits) -> Window:
        """Open a fresh window. Its browser counts as busy meanwhile, so that a replacement does not end it as idle."""
        opening = object()
        self._busy[chromium].add(opening)
        try:
            window = await self._open(chromium, origins, traits)
        except BaseException:
            self._busy.get(chromium, set()).discard(opening)
            await self._end_if_left(chromium)
            raise
        self._busy.get(chromium, set()).discard(opening)
        return window

    async def release(self, window: Window) -> None:
        """Keep the window for its site's next episode, or close it. Never raises, bounded in time."""
        chromium = window.chromium
        try:
            # busy until wiped: a replacement must not end the browser meanwhile, or keep a window of the previous one
            wiped = chromium is self._current and await self._wiped(window)
        finally:
            self._busy.get(chromium, set()).discard(window)
        if chromium is not self._current:
            await self._end_if_left(chromium)
        elif wiped:
            self._idle.append(window)
            # per site: the windows of one site must not displace those of another while a group waits
            idle_of_site = [idle for idle in self._idle if idle.site == window.site]
            if len(idle_of_site) > self._settings.contexts:
                self._idle.remove(idle_of_site[0])
                await self._close(idle_of_site[0])
        else:
            await self._close(window)

    async def discard(self, window: Window) -> None:
        """Kill the window's browser, which no longer answers; its other episodes raise BrowserUnavailable."""
        _log.warning("browser_killed", reason="it no longer answers")
        self._forget(window.chromium)
        await window.chromium.kill()

    def _take_idle(self, site: str, key: str, origins: tuple[str, ...]) -> Window | None:
        """The idle window that served the same family last, else the longest idle one of the site and its origins."""
        fitting = [idle for idle in self._idle if idle.site == site and idle.origins == origins]
        chosen = next((window for window in reversed(fitting) if window.key == key), None)
        if chosen is None:
            chosen = next(iter(fitting), None)
        if chosen is not None:
            self._idle.remove(chosen)
        return chosen

    async def _open(self, chromium: Chromium, origins: tuple[str, ...], traits: SiteTraits) -> Window:
        try:
            async with asyncio.timeout(self._settings.page_timeout_s):
                return await open_window(
                    chromium,
                    origins=origins,
                    traits=traits,
                    proxy=FilteringProxy(origins, private=self._private, resolver=self._resolver),
                    latency_s=self._settings.page_latency_ms / 1000,
                    scroll_share=self._settings.scroll_share,
                )
        except TimeoutError as error:
            self._forget(chromium)
            await chromium.kill()
            raise BrowserUnavailable(
                f"Chromium opened no context within {self._settings.page_timeout_s:g} s and was killed."
            ) from error
        except (PlaywrightError, OSError) as error:
            raise BrowserUnavailable(f"Chromium opened no context: {str(error).splitlines()[0]}") from error

    async def _wiped(self, window: Window) -> bool:
        """Wipe the window; False if it must not be reused or could not be wiped."""
        if not window.reusable or window.spoiled:
            return False
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await window.wipe()
        except (PlaywrightError, TimeoutError, IndexError) as error:
            _log.debug("window_not_reused", reason=str(error))
            return False
        return not window.spoiled

    async def _close(self, window: Window) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await window.context.close()
        except TimeoutError:
            await self.discard(window)
        except PlaywrightError as error:
            _log.debug("window_close_failed", error=str(error))

    # ---- browsers ---------------------------------------------------------------------------------------------------

    async def _chromium(self) -> Chromium:
        """The browser that accepts new episodes, started or replaced where needed. Raises BrowserUnavailable."""
        async with self._starting:
            chromium = self._current
            if chromium is not None:
                reason = self._why_replace(chromium)
                if not reason:
                    return chromium
                _log.info("browser_replaced", reason=reason, episodes=chromium.episodes)
                self._current = None
                self._idle.clear()
                if not self._busy.get(chromium) or not chromium.alive:
                    await self._end(chromium)
            self._current = await Chromium.start(self._settings.browser_path, headed=self._headed)
            self._busy[self._current] = set()
            return self._current

    def _why_replace(self, chromium: Chromium) -> str:
        if not chromium.alive:
            return "it ended"
        if chromium.episodes >= self._settings.browser_episodes:
            return f"it has served {chromium.episodes} episodes"
        if chromium.episodes % MEMORY_CHECK_EPISODES == MEMORY_CHECK_EPISODES - 1:
            memory = chromium.memory_mib()
            if memory > self._settings.browser_memory_mib:
                return f"it holds {memory:.0f} MiB"
        return ""

    def _forget(self, chromium: Chromium) -> None:
        self._busy.pop(chromium, None)
        if chromium is self._current:
            self._current = None
            self._idle.clear()

    async def _end_if_left(self, chromium: Chromium) -> None:
        """End a replaced browser once it has no windows in use."""
        if chromium is not self._current and not self._busy.get(chromium):
            await self._end(chromium)

    async def _end(self, chromium: Chromium) -> None:
        self._forget(chromium)
        await chromium.close()
