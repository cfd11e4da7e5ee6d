"""WebArena's sites as one `Site`: a task begins logged in on its pages, and is probed at the end.

Logging in happens once, then by the resulting cookies, as long as the site accepts them. Cookies are kept in memory alone.
Every entry checks them on a page that only users see. Errors contain neither user nor password. A slot on a site is a file
that an episode locks, over all processes of a machine; the operating system unlocks it when its process ends for any
reason.
"""

import asyncio
import fcntl
import os
import re
import shlex
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog
from playwright.async_api import BrowserContext
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.base import Site, SiteTraits
from hindcast.actors.environments.web.definition import Reset
from hindcast.actors.environments.web.entry import reset_site
from hindcast.actors.environments.web.secrets import Secrets
from hindcast.actors.environments.webarena.addresses import Account, account_for, checked_addresses
from hindcast.actors.environments.webarena.page_looks import Helpers, look_at
from hindcast.actors.environments.webarena.probes import encode_probes
from hindcast.actors.environments.webarena.tasks import ENVIRONMENT, WebArenaGoal, goal_of
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.ids import digest_hex
from hindcast.core.settings.schema import SiteSettings

POLL_S = 0.1
"""Pause between two attempts to find a free slot."""


def places_folder() -> Path:
    """Folder of this user's slots, the same for all runs."""
    return Path(tempfile.gettempdir()) / f"hindcast-webarena-{os.getuid()}"


class HeldSlots:
    """Slots that an episode holds; `free` returns them."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def add(self, file: int) -> None:
        """Keep a locked file."""
        self._files.append(file)

    def free(self) -> None:
        """Return all slots; a second call does nothing."""
        while self._files:
            os.close(self._files.pop())


class SiteSlots:
    """`limit` slots on each address; 0: unlimited."""

    def __init__(self, limit: int, folder: Path) -> None:
        self._limit = limit
        self._folder = folder

    async def take(self, addresses: Iterable[str], slots: HeldSlots) -> None:
        """Wait for one slot on each address and add it to `slots`. The caller bounds the wait, and frees `slots`."""
        if not self._limit:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for address in sorted(set(addresses)):  # one order everywhere prevents deadlocks
            slots.add(await self._wait(digest_hex(address.encode())[:16]))

    async def _wait(self, name: str) -> int:
        while True:
            for number in range(self._limit):
                file = self._try(self._folder / f"{name}.{number}")
                if file is not None:
                    return file
            await asyncio.sleep(POLL_S)

    def _try(self, path: Path) -> int | None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file


FORM = "form:has(input[type=password]:visible)"
"""The site's log-in form, by what all have in common; a page may have a hidden one too."""
USER_FIELD = "input[type=text]:visible, input[type=email]:visible, input:not([type]):visible"
PASSWORD_FIELD = "input[type=password]:visible"


class LoginPage(msgspec.Struct, frozen=True, kw_only=True):
    """The log-in page of a site, and how to check the login. Paths are relative to the site's address."""

    form: str
    inside: str
    """A page for users alone; `{user}` is replaced by the user's name."""
    word: str = ""
    """Text on that page; empty: the page is reached without a redirect."""


DOORS: Mapping[str, LoginPage] = {
    "shopping": LoginPage(form="/customer/account/login/", inside="/wishlist/"),
    "shopping_admin": LoginPage(form="", inside="/dashboard", word="Dashboard"),
    "reddit": LoginPage(form="/login", inside="/user/{user}/account", word="Delete"),
    "gitlab": LoginPage(form="/users/sign_in", inside="/-/profile"),
}
"""Log-in pages by site, as the benchmark's own `auto_login.py` checks them. The other sites have no users."""


class LoginSessions:
    """The logins in use. One object serves any number of concurrent episodes."""

    def __init__(self, addresses: Mapping[str, str], accounts: Mapping[str, tuple[str, ...]]) -> None:
        self._addresses = addresses
        self._accounts = accounts
        self._cookies: dict[str, Sequence[Any]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def enter(self, page: BrowserPage, site: str) -> None:
        """Log the page's context in to a site, if the settings name an account there.

        Raises:
            EnvironmentFailed: the account's variables are not set, or the site rejects it.
        """
        account = account_for(site, self._accounts) if site in DOORS else None
        if account is None:
            return
        try:
            await self._enter(page, site, account)
        except PlaywrightError as error:
            # its text may hold typed input, and addresses the user's name; `from None` keeps tracebacks free of it, too
            cause = re.search(r"net::\w+|Timeout \d+ms", str(error))
            raise EnvironmentFailed(
                f"logging in to {site} at {self._addresses[site]} did not work: "
                f"{cause[0] if cause else 'its log-in form was not found or not taken'}"
            ) from None

    async def _enter(self, page: BrowserPage, site: str, account: Account) -> None:
        cookies = self._cookies.get(site)
        if cookies is not None and await self._holds(page, site, account, cookies):
            return
        async with self._locks[site]:
            renewed = self._cookies.get(site)
            if (
                renewed is not None
                and renewed is not cookies
                and await self._holds(page, site, account, renewed)
            ):
                return
            self._cookies.pop(site, None)
            await self._log_in(page, site, account)
            self._cookies[site] = await page.context.cookies(self._addresses[site])

    async def _holds(self, page: BrowserPage, site: str, account: Account, cookies: Sequence[Any]) -> bool:
        await page.context.add_cookies(cookies)
        if await self._is_inside(page, site, account):
            return True
        for cookie in cookies:
            await page.context.clear_cookies(
                name=cookie["name"], domain=cookie["domain"], path=cookie["path"]
            )
        return False

    async def _is_inside(self, page: BrowserPage, site: str, account: Account) -> bool:
        door = DOORS[site]
        inside_address = self._addresses[site] + door.inside.format(user=account.user)
        await page.goto(inside_address, wait_until="load")
        return door.word in await page.content() if door.word else page.url == inside_address

    async def _log_in(self, page: BrowserPage, site: str, account: Account) -> None:
        address = self._addresses[site]
        await page.goto(address + DOORS[site].form, wait_until="load")
        form = page.locator(FORM).first
        await form.locator(USER_FIELD).first.fill(account.user)
        password = form.locator(PASSWORD_FIELD).first
        await password.fill(account.password)
        async with page.expect_navigation(wait_until="load"):
            await password.press("Enter")
        if not await self._is_inside(page, site, account):
            variables = " and ".join(self._accounts[site])
            raise EnvironmentFailed(
                f"{site} at {address} did not take the account in {variables} (sites.webarena_accounts)"
            )


logger = structlog.get_logger(__name__)

WEB = ("http://", "https://")
MARGIN_S = 5.0
"""The world's time limit exceeds the site's own by this, because the site knows what it waited for."""


class WebArenaSite(Site):
    """The `Site` of a WebArena task file. One object serves any number of concurrent episodes."""

    name = ENVIRONMENT

    def __init__(
        self, settings: SiteSettings, *, trusted: bool = True, slots_folder: Path | None = None
    ) -> None:
        """`trusted`: whether the settings are the user's own, so that accounts may be used and resets may run.

        `slots_folder`: folder of the site slots; None: the folder that all actors of this machine share.
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
        self._slots = SiteSlots(settings.webarena_concurrency, slots_folder or places_folder())
        self._trusted = trusted
        self._was_reset: set[str] = set()
        self._resetting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots_by_context: dict[BrowserContext, HeldSlots] = {}

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
        slots = self._hold(page.context)
        await self._slots.take((self._addresses[site] for site in goal.sites), slots)
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
        used = [
            name
            for name in ("webarena_accounts", "webarena_reset")
            if any(getattr(self._settings, name).values())
        ]
        if used:
            raise EnvironmentFailed(
                f"{' and '.join(f'sites.{name}' for name in used)} would be used as a log says, and a log may come from "
                "anybody. If it is yours: --trust-tasks"
            )

    def _hold(self, context: BrowserContext) -> HeldSlots:
        """The slots that this context holds from now on; they are freed when it closes."""
        slots = HeldSlots()
        self._slots_by_context[context] = slots
        context.on("close", self._give_back)
        for lost in [
            open_context
            for open_context in self._slots_by_context
            if open_context.browser is None or not open_context.browser.is_connected()
        ]:
            self._give_back(lost)
        return slots

    def _give_back(self, context: BrowserContext) -> None:
        slots = self._slots_by_context.pop(context, None)
        if slots is not None:
            slots.free()

    async def probe(self, page: BrowserPage, task: Task) -> dict[str, Any]:
        """What the task's `program_html` entries show, see `probes`."""
        evaluation = goal_of(task).evaluation
        pages = await look_at(
            evaluation.targets,
            page,
            helpers=self._helpers,
            settle_s=self._settings.webarena_settle_s,
        )
        # long pages take a while to compress
        return await asyncio.to_thread(encode_probes, pages, evaluation)

    async def _reset(self, site: str) -> None:
        """Reset a site as `sites.webarena_resets` says: each time, or once for all episodes of this process."""
        reset_setting = self._settings.webarena_reset.get(site, "")
        if not reset_setting or self._settings.webarena_resets == "none":
            return
        hook = (
            Reset(url=reset_setting)
            if reset_setting.startswith(WEB)
            else Reset(command=tuple(shlex.split(reset_setting)))
        )
        async with self._resetting[site]:
            if self._settings.webarena_resets == "per_episode" or site not in self._was_reset:
                secrets = Secrets()
                secrets.learn(name for names in self._settings.webarena_accounts.values() for name in names)
                await reset_site(hook, secrets, name=site)
                self._was_reset.add(site)
