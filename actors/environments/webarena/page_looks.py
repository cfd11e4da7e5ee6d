"""Reads what an episode left: every entry of `program_html`, in turn, in the tab that the episode ended in.

As in the released evaluators, each read continues where the last one led, so that `last` and `__last_url__` mean the
tab's state at that moment. Locators run only inside the page.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.webarena.calls import PREFIX, read_call
from hindcast.actors.environments.webarena.helpers import Helpers
from hindcast.actors.environments.webarena.probes import MAX_CHARACTERS, ProbedPage
from hindcast.actors.environments.webarena.schema import PageCheck
from hindcast.core.errors import EnvironmentFailed

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
    return [await _look(target, page, helpers, settle_s) for target in targets]


async def _look(target: PageCheck, page: BrowserPage, helpers: Helpers, settle_s: float) -> ProbedPage:
    url = target.url
    try:
        if url.startswith(PREFIX):
            url = await helpers.run(read_call(url), page)
            if not url:
                return ProbedPage(url=target.url, found="")
        if url != LAST:
            await page.goto(url, wait_until="load")
            await asyncio.sleep(settle_s)
        return ProbedPage(url=page.url, found=await _read(target, page, helpers))
    except (PlaywrightError, EnvironmentFailed) as error:
        return ProbedPage(url=url, found=None, problem=str(error).splitlines()[0][:300])


async def _read(target: PageCheck, page: BrowserPage, helpers: Helpers) -> str:
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
