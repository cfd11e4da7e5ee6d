"""WebShop as a site that browsers visit: our own pages, or a running server of the original."""

from typing import Any

import msgspec
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.base import Browserless, Site, SiteTraits
from hindcast.actors.environments.webshop.evaluators import PurchaseRecord, record_at
from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.shop import WebshopShop, shop_of
from hindcast.actors.environments.webshop.tasks import ENVIRONMENT
from hindcast.actors.environments.webshop.views import WebshopLocation, location_at, path_of
from hindcast.actors.environments.webshop.world import WebshopText
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.settings.schema import SiteSettings
from hindcast.core.structs import convert

PAGE_TIMEOUT_MS = 15_000.0
ENDED = "document.getElementById('thankyou')"
"""The last page of a visit, ours and upstream's."""
_INSTRUCTION_JS = "() => document.getElementById('instruction-text')?.innerText ?? ''"
_SCORE_JS = (
    "() => document.querySelector('#thankyou') && document.querySelector('#reward pre')?.innerText || ''"
)


class WebshopSite(Site):
    """Our own pages. The shop keeps no sessions, so one object serves any number of episodes."""

    name = ENVIRONMENT
    traits = SiteTraits(reusable=True, ended=ENDED)

    def __init__(self, base_url: str, shop: WebshopShop) -> None:
        self._base = base_url.rstrip("/")
        self._shop = shop

    def origins(self, task: Task) -> tuple[str, ...]:
        """The shop's own origin alone."""
        return (self._base,)

    async def enter(self, page: BrowserPage, task: Task) -> str:
        """Load the search page of the task's goal. Raises EnvironmentFailed when the shop has no such goal."""
        goal = _goal_of(task)
        instruction = await _open(page, f"{self._base}{path_of(WebshopLocation(goal=goal.digest))}", task)
        if task.goal.get("shop") != self._shop.digest or "".join(instruction.split()) != "".join(
            goal.instruction.split()
        ):
            raise EnvironmentFailed(
                f"task {task.id} was made from other data of WebShop's than {self._base} shows: use the same "
                "sites.webshop_items and sites.webshop_instructions for tasks and shop"
            )
        return task.instruction

    async def probe(self, page: BrowserPage, task: Task) -> dict[str, Any]:
        """What was bought, from the address of the last page. See `evaluators.PurchaseRecord`."""
        location = location_at(page.url) if page.url.startswith(f"{self._base}/") else None
        record: dict[str, Any] = msgspec.to_builtins(record_at(self._shop, location, _goal_of(task)))
        return record


class WebshopServerSite(Site):
    """A running server of the original (`web_agent_site/app.py`). It keeps a session per goal forever."""

    name = ENVIRONMENT
    traits = SiteTraits(ended=ENDED)

    def __init__(self, base_url: str) -> None:
        self._base = base_url.rstrip("/")

    def origins(self, task: Task) -> tuple[str, ...]:
        """The server's own origin alone: style sheets and pictures from elsewhere are not loaded."""
        return (self._base,)

    async def enter(self, page: BrowserPage, task: Task) -> str:
        """Load the search page of the session and return the instruction on it."""
        text = await _open(page, f"{self._base}/{task.goal['session']}", task)
        instruction = " ".join(text.split()).removeprefix("Instruction:").strip()
        if not instruction:
            raise EnvironmentFailed(f"{self._base} shows no instruction: is it a WebShop server?")
        return instruction

    async def probe(self, page: BrowserPage, task: Task) -> dict[str, Any]:
        """The score on the last page, None before it."""
        text = str(await page.evaluate(_SCORE_JS)).strip()
        try:
            score = float(text) if text else None
        except ValueError as error:
            raise EnvironmentFailed(f"{self._base} shows {text[:40]!r} as the score") from error
        record: dict[str, Any] = msgspec.to_builtins(PurchaseRecord(shop="", score=score))
        return record


async def _open(page: BrowserPage, url: str, task: Task) -> str:
    """Load an address and return the instruction on it."""
    response = await page.goto(url, timeout=PAGE_TIMEOUT_MS, wait_until="domcontentloaded")
    if response is None or not response.ok:
        status = response.status if response else "nothing"
        raise EnvironmentFailed(f"{url} answered {status} to a fresh visit for {task.id}")
    return str(await page.evaluate(_INSTRUCTION_JS))


def webshop_site(settings: SiteSettings, base_url: str) -> Site | Browserless | None:
    """WebShop as the settings name it, with its own pages on the store's server at `base_url`; None where there is none."""
    if settings.webshop_url:
        return WebshopServerSite(settings.webshop_url)
    if not settings.webshop_items:
        return None
    shop = shop_of(settings)
    return WebshopText(shop) if settings.webshop_mode == "text" else WebshopSite(base_url, shop)


def _goal_of(task: Task) -> WebshopGoal:
    try:
        return convert(task.goal.get("wanted"), WebshopGoal)
    except msgspec.ValidationError as error:
        raise EnvironmentFailed(f"task {task.id} holds no goal of WebShop's: {error}") from error
