"""WebShop's pages over HTTP, on the store's server. They keep no state: an address determines its page."""

from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from hindcast.actors.environments.webshop.shop import WebshopShop, shop_of
from hindcast.actors.environments.webshop.views import (
    ROOT,
    WebshopElement,
    WebshopView,
    address_of,
    location_at,
    path_of,
    query_of,
    view_of,
)
from hindcast.core.settings.schema import SiteSettings

PART_CHARS = 190
"""Longer texts are split: an observation caps one text at 200 characters."""
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class ElementGroup(NamedTuple):
    """Neighboring elements of a page with a common layout: the values of an option, the search field and its button."""

    number: int
    kind: str
    elements: list[WebshopElement]


class WebshopPages:
    """Renders places as HTML."""

    def __init__(self, shop: WebshopShop) -> None:
        self._shop = shop
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.globals.update(
            address_of=address_of, path_of=path_of, query_of=query_of, parts_of=parts_of
        )
        self._template = environment.get_template("page.html")

    async def show(self, request: Request) -> Response:
        """The page at the request's address."""
        location = location_at(_address(request))
        view = view_of(self._shop, location) if location is not None else None
        if location is None or view is None:
            return PlainTextResponse("WebShop has no such page.\n", status_code=404, headers=_HEADERS)
        return HTMLResponse(self._template.render(view=view, groups=_groups(view)), headers=_HEADERS)


def webshop_routes(settings: SiteSettings) -> list[Route]:
    """Routes of the pages, none where the settings name no data for them. Raises SettingsError."""
    if not settings.webshop_items or settings.webshop_mode != "pages":
        return []
    return [Route(f"{ROOT}/{{rest:path}}", WebshopPages(shop_of(settings)).show, methods=["GET"])]


def _address(request: Request) -> str:
    """Path and query as they were sent: an escaped slash in a name is not a separator."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return f"{raw.decode('ascii', 'replace').partition('?')[0]}?{request.url.query}"


def parts_of(text: str) -> list[str]:
    """Split a text into pieces of at most `PART_CHARS`, between words where possible."""
    return wrap(text, PART_CHARS, break_on_hyphens=False) or [""]


def _groups(view: WebshopView) -> list[ElementGroup]:
    def key(element: WebshopElement) -> tuple[str, str]:
        if element.kind == "option":
            return "option", element.name
        return ("search", "") if element.kind == "search" or element.name == "search" else ("", "")

    grouped = groupby(view.elements, key)
    return [ElementGroup(number, kind[0], list(elements)) for number, (kind, elements) in enumerate(grouped)]
