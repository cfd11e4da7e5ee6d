"""WebArena's sites as one `Site`: a task begins logged in on its pages, and is probed at the end."""

import asyncio
import shlex
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import structlog
from playwright.async_api import BrowserContext
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.site import SiteTraits
from hindcast.actors.environments.web.definition import Reset
from hindcast.actors.environments.web.entry import reset_site
from hindcast.actors.environments.web.secrets import Secrets
from hindcast.actors.environments.webarena.addresses import checked_addresses
from hindcast.actors.environments.webarena.helpers import Helpers
from hindcast.actors.environments.webarena.login import LoginSessions
from hindcast.actors.environments.webarena.page_looks import look_at
from hindcast.actors.environments.webarena.probes import stored
from hindcast.actors.environments.webarena.site_slots import HeldSlots, SiteSlots, places_folder
from hindcast.actors.environments.webarena.tasks import ENVIRONMENT, WebArenaGoal, goal_of
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.settings.schema import SiteSettings

logger = structlog.get_logger(__name__)

WEB = ("http://", "https://")
MARGIN_S = 5.0
"""The world's time limit exceeds the site's own by this, because the site knows what it waited for."""


class WebArenaSite:
    """The `Site` of a WebArena task file. One object serves any number of concurrent episodes."""

    name = ENVIRONMENT

    def __init__(self, settings: SiteSettings, *, trusted: bool = True, places: Path | None = None) -> None:
        """`trusted`: whether the settings are the user's own, so that accounts may be used and resets may run.

        `places`: folder of the site slots; None: the folder that all actors of this machine share.
        """
        self.traits = SiteTraits(
            patience_s=settings.webarena_patience_s + MARGIN_S,
            probes_active=True,
            viewport=settings.webarena_window,
        )
        self._settings = settings
        self._addresses = checked_addresses(settings.webarena_sites)
        self._log_ins = LoginSessions(self._addresses, settings.webarena_accounts)
        self._helpers = Helpers(self._addresses, settings.webarena_accounts)
        self._places = SiteSlots(settings.webarena_concurrency, places or places_folder())
        self._trusted = trusted
        self._was_reset: set[str] = set()
        self._resetting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._held: dict[BrowserContext, HeldSlots] = {}

    def origins(self, task: Task) -> tuple[str, ...]:
        """The origins of the task's sites."""
        return goal_of(task).origins

    async def enter(self, page: BrowserPage, task: Task) -> str:
        """Take a slot on every site, reset it where asked, log in, and load the first pages, a tab each.

        Raises:
            EnvironmentFailed: a site does not answer or rejects its account; says what was waited for.
        """
        if not self._trusted:
            self._require_harmless()
        doing = "waiting for a place (sites.webarena_concurrency)"
        try:
            async with asyncio.timeout(self._settings.webarena_patience_s):
                async for doing in self._steps_in(page, goal_of(task)):
                    logger.debug("webarena", task=task.id, doing=doing)
        except TimeoutError:
            raise EnvironmentFailed(
                f"webarena's task {goal_of(task).number}: {doing} was not over after "
                f"{self._settings.webarena_patience_s:g} s (sites.webarena_patience_s)"
            ) from None
        return task.instruction

    async def _steps_in(self, page: BrowserPage, goal: WebArenaGoal) -> AsyncIterator[str]:
        """Enter a task step by step; yields the description of each step before it."""
        held = self._hold(page.context)
        await self._places.take((self._addresses[site] for site in goal.sites), held)
        for site in goal.sites:
            yield f"resetting {site}"
            await self._reset(site)
        for site in goal.login:
            yield f"logging in to {site}"
            await self._log_ins.enter(page, site)
        # a tab that opens becomes the active one: the first address is loaded last
        order = [*goal.start[1:], goal.start[0]]
        for number, address in enumerate(order):
            yield f"loading {address}"
            tab = page if number == 0 else await page.context.new_page()
            await tab.goto(address, wait_until="load")

    def _require_harmless(self) -> None:
        asked = [
            name
            for name in ("webarena_accounts", "webarena_reset")
            if any(getattr(self._settings, name).values())
        ]
        if asked:
            raise EnvironmentFailed(
                f"{' and '.join(f'sites.{name}' for name in asked)} would be used as a log says, and a log may come from "
                "anybody. If it is yours: --trust-tasks"
            )

    def _hold(self, context: BrowserContext) -> HeldSlots:
        """The slots that this context holds from now on; they are freed when it closes."""
        held = HeldSlots()
        self._held[context] = held
        context.on("close", self._give_back)
        for lost in [one for one in self._held if one.browser is None or not one.browser.is_connected()]:
            self._give_back(lost)
        return held

    def _give_back(self, context: BrowserContext) -> None:
        held = self._held.pop(context, None)
        if held is not None:
            held.free()

    async def probe(self, page: BrowserPage, task: Task) -> dict[str, Any]:
        """What the task's `program_html` entries show, see `probes`."""
        evaluation = goal_of(task).evaluation
        looks = await look_at(
            evaluation.targets,
            page,
            helpers=self._helpers,
            settle_s=self._settings.webarena_settle_s,
        )
        # long pages take a while to compress
        return await asyncio.to_thread(stored, looks, evaluation)

    async def leave(self, task: Task) -> None:
        """Do nothing: slots are freed as the context closes, whichever member of a group it belongs to."""

    async def _reset(self, site: str) -> None:
        """Reset a site as `sites.webarena_resets` says: each time, or once for all episodes of this process."""
        how = self._settings.webarena_reset.get(site, "")
        if not how or self._settings.webarena_resets == "none":
            return
        hook = Reset(url=how) if how.startswith(WEB) else Reset(command=tuple(shlex.split(how)))
        async with self._resetting[site]:
            if self._settings.webarena_resets == "per_episode" or site not in self._was_reset:
                secrets = Secrets()
                secrets.learn(name for names in self._settings.webarena_accounts.values() for name in names)
                await reset_site(hook, secrets, name=site)
                self._was_reset.add(site)
