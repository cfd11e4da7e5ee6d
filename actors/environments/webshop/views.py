"""The page at a place: upstream's words and buttons in upstream's order. Pure.

One description serves the browser (`server`) and the text mode (`world`).
"""

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.locations import PARTS, WebshopLocation
from hindcast.actors.environments.webshop.products import WebshopProduct
from hindcast.actors.environments.webshop.search import FOUND
from hindcast.actors.environments.webshop.shop import WebshopShop

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


def view_of(shop: WebshopShop, place: WebshopLocation) -> WebshopView | None:
    """The page at a place; None where goal, product or option do not exist."""
    goal = shop.goals.get(place.goal)
    if goal is None:
        return None
    if place.kind == "index":
        return WebshopView(title="WebShop", elements=tuple(_index(goal, place)))
    if place.kind == "results":
        return WebshopView(title="Results", elements=tuple(_results(shop, goal, place)))
    product = shop.get(place.asin)
    if product is None or not product.offers(place.options):
        return None
    match place.kind:
        case "item":
            return WebshopView(title=product.title, elements=tuple(_item(shop, goal, place, product)))
        case "part":
            if place.part == "Attributes" and not shop.shows_attributes:
                return None
            return WebshopView(title=product.title, elements=tuple(_part(goal, place, product)))
        case _:
            thanks = WebshopElement(kind="heading", text=THANKS, name="thankyou")
            return WebshopView(title="WebShop", elements=(thanks,), ended=True)


def _index(goal: WebshopGoal, place: WebshopLocation) -> Iterator[WebshopElement]:
    yield WebshopElement(kind="heading", text="WebShop")
    yield from _instruction(goal)
    yield WebshopElement(kind="search", text="Search...", to=replace(place, kind="results"))
    yield WebshopElement(kind="button", text="Search", to=replace(place, kind="results"), name="search")


def _results(shop: WebshopShop, goal: WebshopGoal, place: WebshopLocation) -> Iterator[WebshopElement]:
    found = shop.index.search(place.keywords)
    yield from _instruction(goal)
    yield _back_to_search(place)
    yield WebshopElement(kind="heading", text=f"Page {place.page} (Total results: {len(found)})")
    if place.page > 1:
        yield WebshopElement(kind="button", text="< Prev", to=replace(place, page=place.page - 1))
    if place.page * PER_PAGE < min(len(found), FOUND):
        yield WebshopElement(kind="button", text="Next >", to=replace(place, page=place.page + 1))
    for product in found[(place.page - 1) * PER_PAGE : place.page * PER_PAGE]:
        yield WebshopElement(
            kind="link", text=product.asin, to=replace(place, kind="item", asin=product.asin)
        )
        yield WebshopElement(kind="text", text=product.title)
        yield WebshopElement(kind="text", text=product.price_tag)


def _item(
    shop: WebshopShop, goal: WebshopGoal, place: WebshopLocation, product: WebshopProduct
) -> Iterator[WebshopElement]:
    yield from _instruction(goal)
    yield _back_to_search(place)
    yield WebshopElement(kind="button", text="< Prev", to=replace(place, kind="results", asin="", options={}))
    for name, values in product.options.items():
        yield WebshopElement(kind="heading", text=name)
        for value in values:
            yield WebshopElement(
                kind="option",
                text=value,
                name=name,
                chosen=place.options.get(name) == value,
                to=replace(place, options=place.options | {name: value}),
            )
    yield WebshopElement(kind="heading", text=product.title)
    yield WebshopElement(kind="text", text=f"Price: {product.price_tag}")
    yield WebshopElement(kind="text", text=f"Rating: {UNRATED}")
    for part in PARTS:
        if part != "Attributes" or shop.shows_attributes:
            yield WebshopElement(kind="button", text=part, to=replace(place, kind="part", part=part))
    done = WebshopLocation(goal=place.goal, kind="done", asin=place.asin, options=place.options)
    yield WebshopElement(kind="button", text="Buy Now", to=done)


def _part(goal: WebshopGoal, place: WebshopLocation, product: WebshopProduct) -> Iterator[WebshopElement]:
    yield from _instruction(goal)
    yield _back_to_search(place)
    yield WebshopElement(kind="button", text="< Prev", to=replace(place, kind="item", part="Description"))
    match place.part:
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


def _back_to_search(place: WebshopLocation) -> WebshopElement:
    return WebshopElement(kind="button", text="Back to Search", to=WebshopLocation(goal=place.goal))
