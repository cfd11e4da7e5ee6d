"""Logs in to the benchmark's sites: once, then by the resulting cookies, as long as the site accepts them.

Cookies are kept in memory alone. Every entry checks them on a page that only users see. Errors contain neither user nor
password.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.webarena.accounts import Account, account_for
from hindcast.core.errors import EnvironmentFailed

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
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

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
            told = re.search(r"net::\w+|Timeout \d+ms", str(error))
            raise EnvironmentFailed(
                f"logging in to {site} at {self._addresses[site]} did not work: "
                f"{told[0] if told else 'its log-in form was not found or not taken'}"
            ) from None

    async def _enter(self, page: BrowserPage, site: str, account: Account) -> None:
        known = self._cookies.get(site)
        if known is not None and await self._holds(page, site, account, known):
            return
        async with self._turns[site]:
            renewed = self._cookies.get(site)
            if (
                renewed is not None
                and renewed is not known
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
        wanted = self._addresses[site] + door.inside.format(user=account.user)
        await page.goto(wanted, wait_until="load")
        return door.word in await page.content() if door.word else page.url == wanted

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
