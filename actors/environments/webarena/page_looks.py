"""Reads what an episode left: every entry of `program_html`, in turn, in the tab that the episode ended in.

As in the released evaluators, each read continues where the last one led, so that `last` and `__last_url__` mean the
tab's state at that moment. Locators run only inside the page.

Helper functions are what task files call with `func:`; they follow `evaluation_harness/helper_functions.py`. Where those
raise because nothing exists (no order yet, no such member), the text is empty here, so that the check fails and the episode
is not lost.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.webarena.addresses import ADMIN_API, account_for
from hindcast.actors.environments.webarena.probes import MAX_CHARACTERS, ProbedPage
from hindcast.actors.environments.webarena.schema import LAST_URL, PREFIX, Call, PageCheck, read_call
from hindcast.actors.http_calls import call
from hindcast.core.errors import EnvironmentFailed

TIMEOUT_S = 20.0
"""Time limit of one request to the shop's interface."""
MAX_REPLY_BYTES = 8 * 2**20

_MEMBER_ROLE = """name => {
    const accounts = [...document.querySelectorAll("td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
    const row = accounts.findIndex(account => account.outerText === '@' + name);
    return document.querySelectorAll('td.col-max-role span')[row]?.outerText ?? '';
}"""


class Helpers:
    """Executes calls. One object serves any number of concurrent episodes."""

    def __init__(self, addresses: Mapping[str, str], accounts: Mapping[str, tuple[str, ...]]) -> None:
        self._addresses = addresses
        self._accounts = accounts

    async def run(self, called: Call, page: BrowserPage) -> str:
        """The function's result as text.

        Raises:
            EnvironmentFailed: the shop does not answer, or not as Magento does, or has no account for it.
        """
        try:
            return await self._run(called, page)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EnvironmentFailed(
                f"{called.name}: the shop's answer has another form than Magento's: {error!r}"
            ) from None

    async def _run(self, called: Call, page: BrowserPage) -> str:
        texts = [argument.replace(LAST_URL, page.url) for argument in called.arguments]
        match called.name:
            case "reddit_get_post_url":
                return post_url(texts[0])
            case "gitlab_get_project_memeber_role":
                return await _member_role(page, texts[1])
            case "shopping_get_latest_order_url":
                return await self._latest_order_url()
            case _:
                return await self._latest_review(texts[0], called.name.rsplit("_", 1)[1])

    async def _latest_order_url(self) -> str:
        newest = {
            "searchCriteria[sortOrders][0][field]": "created_at",
            "searchCriteria[sortOrders][0][direction]": "DESC",
            "searchCriteria[pageSize]": "1",
        }
        result = await self._ask(f"/rest/V1/orders?{urlencode(newest)}")
        orders = result.get("items") if isinstance(result, dict) else None
        if not orders:
            return ""
        return f"{self._shop}/sales/order/view/order_id/{int(orders[0]['increment_id'])}/"

    async def _latest_review(self, sku: str, field: str) -> str:
        reviews = await self._ask(f"/rest/V1/products/{quote(sku, safe='')}/reviews")
        if not isinstance(reviews, list) or not reviews:
            return ""
        return str(reviews[-1]["nickname"] if field == "author" else reviews[-1]["ratings"][0]["percent"])

    @property
    def _shop(self) -> str:
        if "shopping" not in self._addresses:
            raise EnvironmentFailed(
                "a helper function asks the shop, and sites.webarena_sites has no shopping"
            )
        return self._addresses["shopping"]

    async def _ask(self, path: str) -> Any:
        account = account_for(ADMIN_API, self._accounts)
        if account is None:
            raise EnvironmentFailed(
                f"a helper function asks the shop's interface, and sites.webarena_accounts has no {ADMIN_API}"
            )
        body = msgspec.json.encode({"username": account.user, "password": account.password})
        token = await self._send("/rest/default/V1/integration/admin/token", {}, body)
        return await self._send(path, {"authorization": f"Bearer {token}"}, None)

    async def _send(self, path: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        answer = await call(
            self._shop + path,
            method="GET" if body is None else "POST",
            headers={"content-type": "application/json", **headers},
            body=body,
            timeout_s=TIMEOUT_S,
            max_bytes=MAX_REPLY_BYTES,
        )
        endpoint = path.split("?")[0]
        if answer.error:
            raise EnvironmentFailed(f"the shop at {self._shop} gave no answer to {endpoint}: {answer.error}")
        if not 200 <= answer.status < 300:
            # the response may repeat the request, a password included
            raise EnvironmentFailed(f"the shop at {self._shop} answered {answer.status} to {endpoint}")
        try:
            return msgspec.json.decode(answer.body)
        except msgspec.DecodeError as error:
            raise EnvironmentFailed(
                f"the shop at {self._shop} gave no answer to {endpoint}: {error}"
            ) from None


def post_url(url: str) -> str:
    """The post that an address of the forum belongs to; any other address unchanged.

    >>> post_url("http://localhost:9999/f/books/59421/title#comment")
    'http://localhost:9999/f/books/59421/'
    """
    split = urlsplit(url)
    path = split.path.split("/")
    if len(path) < 4 or path[1] != "f":
        return url
    return f"{split.scheme}://{split.netloc}/f/{path[2]}/{path[3]}/"


async def _member_role(page: BrowserPage, name: str) -> str:
    try:
        return str(await page.evaluate(_MEMBER_ROLE, name))
    except PlaywrightError:
        return ""


LAST = "last"
WHOLE_PAGE = (
    "(document.doctype ? new XMLSerializer().serializeToString(document.doctype) : '')"
    " + (document.documentElement?.outerHTML ?? '')"
)
"""The page's source as Playwright's `content()` gives it, which the released evaluators read."""


async def look_at(
    targets: Sequence[PageCheck], page: BrowserPage, *, helpers: Helpers, settle_s: float
) -> list[ProbedPage]:
    """Read each target; a target that cannot be read says why."""
    if targets and page.is_closed():
        page = await page.context.new_page()
    return [await _probe_page(target, page, helpers, settle_s) for target in targets]


async def _probe_page(target: PageCheck, page: BrowserPage, helpers: Helpers, settle_s: float) -> ProbedPage:
    url = target.url
    try:
        if url.startswith(PREFIX):
            url = await helpers.run(read_call(url), page)
            if not url:
                return ProbedPage(url=target.url, found="")
        if url != LAST:
            await page.goto(url, wait_until="load")
            await asyncio.sleep(settle_s)
        return ProbedPage(url=page.url, found=await _locator_text(target, page, helpers))
    except (PlaywrightError, EnvironmentFailed) as error:
        return ProbedPage(url=url, found=None, problem=str(error).splitlines()[0][:300])


async def _locator_text(target: PageCheck, page: BrowserPage, helpers: Helpers) -> str:
    """The text that the locator finds; empty where the locator fails in the page, because then it is not the wanted page."""
    if not target.locator:
        return str(await page.evaluate(_bounded(WHOLE_PAGE)))
    if target.locator.startswith(PREFIX):
        return await helpers.run(read_call(target.locator), page)
    # as upstream: a failed preparation shows in what is then found
    with suppress(PlaywrightError):
        for expression in target.prepare:
            await page.evaluate(f"() => {expression}")
    try:
        # Python's spelling, as upstream: True, None, 1
        return str(await page.evaluate(_bounded(target.locator.rstrip("; "))))
    except PlaywrightError:
        if page.is_closed():
            raise
        return ""


def _bounded(expression: str) -> str:
    """The expression as a function; of a text, at most one character more than is read leaves the page."""
    return (
        f"() => {{ const found = (() => {expression})();"
        f" return typeof found === 'string' ? found.slice(0, {MAX_CHARACTERS + 1}) : found; }}"
    )
