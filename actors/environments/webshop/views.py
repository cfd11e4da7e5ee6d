"""The page at a place: upstream's words and buttons in upstream's order. Pure.

One description serves the browser (`server`) and the text mode (`world`).

The address holds all of a shopper's place, as upstream: goal, keywords, page, product, chosen options. So the shop keeps
no sessions: equal addresses show equal pages, visits are independent, and the address of the last page shows what was
bought. The path names goal and product; the query holds the way there and the chosen options.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Literal
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.products import WebshopProduct
from hindcast.actors.environments.webshop.shop import FOUND, WebshopShop
from hindcast.core.structs import convert, decode_json

PlaceKind = Literal["index", "results", "item", "part", "done"]
Part = Literal["Description", "Features", "Reviews", "Attributes"]
PARTS: tuple[Part, ...] = ("Description", "Features", "Reviews", "Attributes")
"""A product's sub-pages."""
ROOT = "/webshop"
"""Prefix of every path, so that the store's server can show both shops."""
MAX_ADDRESS_CHARS = 20_000


class WebshopLocation(msgspec.Struct, frozen=True, kw_only=True):
    """One page of one goal's shop. Fields that a kind of page does not have keep their defaults."""

    goal: str
    """The goal's digest."""
    kind: PlaceKind = "index"
    keywords: str = ""
    page: int = 1
    """Page of the results, from 1."""
    asin: str = ""
    part: Part = "Description"
    options: dict[str, str] = {}
    """Chosen options: name -> value."""


def path_of(location: WebshopLocation) -> str:
    """The path of a place, which its query completes.

    >>> path_of(WebshopLocation(goal="ab", kind="item", asin="B01", keywords="red mug"))
    '/webshop/item_page/ab/B01'
    """
    match location.kind:
        case "index":
            segments = [location.goal]
        case "results":
            segments = ["search_results", location.goal]
        case "item":
            segments = ["item_page", location.goal, location.asin]
        case "part":
            segments = ["item_sub_page", location.goal, location.asin, location.part]
        case "done":
            segments = ["done", location.goal, location.asin]
    return "/".join([ROOT, *(quote(segment, safe="", errors="replace") for segment in segments)])


def query_of(location: WebshopLocation) -> dict[str, str]:
    """The query of a place's address, in its order; defaults are left out."""
    parameters: dict[str, str] = {}
    if location.kind in ("results", "item", "part"):
        if location.keywords:
            parameters["keywords"] = location.keywords
        if location.page != 1:
            parameters["page"] = str(location.page)
    if location.kind in ("item", "part", "done") and location.options:
        parameters["options"] = json.dumps(location.options, sort_keys=True, ensure_ascii=False)
    return parameters


def address_of(location: WebshopLocation) -> str:
    """Path and query, as `location_at` parses them."""
    query = urlencode(query_of(location), errors="replace")
    return f"{path_of(location)}?{query}" if query else path_of(location)


def location_at(address: str) -> WebshopLocation | None:
    """The place of an address, whatever its host; None where the shop has no such page."""
    if len(address) > MAX_ADDRESS_CHARS:
        return None
    try:
        url = urlsplit(address)
        if not url.path.startswith(f"{ROOT}/"):
            return None
        query = {name: values[-1] for name, values in parse_qs(url.query, max_num_fields=10).items()}
        return _location(
            [unquote(segment) for segment in url.path.removeprefix(f"{ROOT}/").split("/")], query
        )
    except ValueError:
        return None


def _location(segments: list[str], query: Mapping[str, str]) -> WebshopLocation | None:
    keywords, page = query.get("keywords", ""), _number(query.get("page", "1"))
    options = decode_json(query.get("options", "{}"), dict[str, str])
    match segments:
        case [goal] if goal:
            return WebshopLocation(goal=goal)
        case ["search_results", goal]:
            return WebshopLocation(goal=goal, kind="results", keywords=keywords, page=page)
        case ["item_page", goal, asin]:
            return WebshopLocation(
                goal=goal, kind="item", asin=asin, keywords=keywords, page=page, options=options
            )
        case ["item_sub_page", goal, asin, name]:
            part = convert(name, Part)
            return WebshopLocation(
                goal=goal, kind="part", asin=asin, part=part, keywords=keywords, page=page, options=options
            )
        case ["done", goal, asin]:
            return WebshopLocation(goal=goal, kind="done", asin=asin, options=options)
    return None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and int(text) > 0):
        raise ValueError(f"{text!r} is no number of a page")
    return int(text)


PER_PAGE = 10
"""Results on a page."""
UNRATED = "N.A."
"""Rating of every product: WebShop's released data have no reviews."""
THANKS = "Thank you for shopping with us!"
"""The whole last page. Upstream also shows the score there, which an agent could read from a second tab."""

ElementKind = Literal["heading", "text", "button", "link", "option", "search"]


class WebshopElement(msgspec.Struct, frozen=True, kw_only=True):
    """One element of a page."""

    kind: ElementKind
    text: str
    to: WebshopLocation | None = None
    """The place it leads to; a search field leads to the results of the typed text."""
    name: str = ""
    """The option that a value belongs to; the name of a text on the page."""
    chosen: bool = False
    """Whether the option's value is the chosen one."""


class WebshopView(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a page."""

    title: str
    elements: tuple[WebshopElement, ...]
    ended: bool = False
    """Whether something was bought, which ends the visit."""


def view_of(shop: WebshopShop, location: WebshopLocation) -> WebshopView | None:
    """The page at a place; None where goal, product or option do not exist."""
    goal = shop.goals.get(location.goal)
    if goal is None:
        return None
    if location.kind == "index":
        return WebshopView(title="WebShop", elements=tuple(_index(goal, location)))
    if location.kind == "results":
        return WebshopView(title="Results", elements=tuple(_results(shop, goal, location)))
    product = shop.get(location.asin)
    if product is None or not product.offers(location.options):
        return None
    match location.kind:
        case "item":
            return WebshopView(title=product.title, elements=tuple(_item(shop, goal, location, product)))
        case "part":
            if location.part == "Attributes" and not shop.shows_attributes:
                return None
            return WebshopView(title=product.title, elements=tuple(_product_part(goal, location, product)))
        case _:
            thanks = WebshopElement(kind="heading", text=THANKS, name="thankyou")
            return WebshopView(title="WebShop", elements=(thanks,), ended=True)


def _index(goal: WebshopGoal, location: WebshopLocation) -> Iterator[WebshopElement]:
    yield WebshopElement(kind="heading", text="WebShop")
    yield from _instruction(goal)
    yield WebshopElement(kind="search", text="Search...", to=replace(location, kind="results"))
    yield WebshopElement(kind="button", text="Search", to=replace(location, kind="results"), name="search")


def _results(shop: WebshopShop, goal: WebshopGoal, location: WebshopLocation) -> Iterator[WebshopElement]:
    products = shop.index.search(location.keywords)
    yield from _instruction(goal)
    yield _back_to_search(location)
    yield WebshopElement(kind="heading", text=f"Page {location.page} (Total results: {len(products)})")
    if location.page > 1:
        yield WebshopElement(kind="button", text="< Prev", to=replace(location, page=location.page - 1))
    if location.page * PER_PAGE < min(len(products), FOUND):
        yield WebshopElement(kind="button", text="Next >", to=replace(location, page=location.page + 1))
    for product in products[(location.page - 1) * PER_PAGE : location.page * PER_PAGE]:
        yield WebshopElement(
            kind="link", text=product.asin, to=replace(location, kind="item", asin=product.asin)
        )
        yield WebshopElement(kind="text", text=product.title)
        yield WebshopElement(kind="text", text=product.price_tag)


def _item(
    shop: WebshopShop, goal: WebshopGoal, location: WebshopLocation, product: WebshopProduct
) -> Iterator[WebshopElement]:
    yield from _instruction(goal)
    yield _back_to_search(location)
    yield WebshopElement(
        kind="button", text="< Prev", to=replace(location, kind="results", asin="", options={})
    )
    for name, values in product.options.items():
        yield WebshopElement(kind="heading", text=name)
        for value in values:
            yield WebshopElement(
                kind="option",
                text=value,
                name=name,
                chosen=location.options.get(name) == value,
                to=replace(location, options=location.options | {name: value}),
            )
    yield WebshopElement(kind="heading", text=product.title)
    yield WebshopElement(kind="text", text=f"Price: {product.price_tag}")
    yield WebshopElement(kind="text", text=f"Rating: {UNRATED}")
    for part in PARTS:
        if part != "Attributes" or shop.shows_attributes:
            yield WebshopElement(kind="button", text=part, to=replace(location, kind="part", part=part))
    after_purchase = WebshopLocation(
        goal=location.goal, kind="done", asin=location.asin, options=location.options
    )
    yield WebshopElement(kind="button", text="Buy Now", to=after_purchase)


def _product_part(
    goal: WebshopGoal, location: WebshopLocation, product: WebshopProduct
) -> Iterator[WebshopElement]:
    yield from _instruction(goal)
    yield _back_to_search(location)
    yield WebshopElement(kind="button", text="< Prev", to=replace(location, kind="item", part="Description"))
    match location.part:
        case "Description":
            texts = [product.description]
        case "Features":
            texts = list(product.bullets)
        case "Reviews":
            texts = ["No reviews found"]
        case "Attributes":
            texts = [*product.attributes, product.category, product.query, product.product_category]
    for text in texts:
        yield WebshopElement(kind="text", text=" ".join(text.split()))


def _instruction(goal: WebshopGoal) -> Iterator[WebshopElement]:
    yield WebshopElement(kind="heading", text="Instruction:")
    yield WebshopElement(kind="text", text=goal.instruction, name="instruction-text")


def _back_to_search(location: WebshopLocation) -> WebshopElement:
    return WebshopElement(kind="button", text="Back to Search", to=WebshopLocation(goal=location.goal))
