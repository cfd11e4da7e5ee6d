"""The place of a shopper. As upstream, the address holds all of it: goal, keywords, page, product, chosen options.

So the shop keeps no sessions: equal addresses show equal pages, visits are independent, and the address of the last page
shows what was bought. The path names goal and product; the query holds the way there and the chosen options.
"""

import json
from collections.abc import Mapping
from typing import Literal
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import msgspec

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


def path_of(place: WebshopLocation) -> str:
    """The path of a place, which its query completes.

    >>> path_of(WebshopLocation(goal="ab", kind="item", asin="B01", keywords="red mug"))
    '/webshop/item_page/ab/B01'
    """
    match place.kind:
        case "index":
            parts = [place.goal]
        case "results":
            parts = ["search_results", place.goal]
        case "item":
            parts = ["item_page", place.goal, place.asin]
        case "part":
            parts = ["item_sub_page", place.goal, place.asin, place.part]
        case "done":
            parts = ["done", place.goal, place.asin]
    return "/".join([ROOT, *(quote(part, safe="", errors="replace") for part in parts)])


def query_of(place: WebshopLocation) -> dict[str, str]:
    """The query of a place's address, in its order; defaults are left out."""
    found: dict[str, str] = {}
    if place.kind in ("results", "item", "part"):
        if place.keywords:
            found["keywords"] = place.keywords
        if place.page != 1:
            found["page"] = str(place.page)
    if place.kind in ("item", "part", "done") and place.options:
        found["options"] = json.dumps(place.options, sort_keys=True, ensure_ascii=False)
    return found


def address_of(place: WebshopLocation) -> str:
    """Path and query, as `place_at` parses them."""
    query = urlencode(query_of(place), errors="replace")
    return f"{path_of(place)}?{query}" if query else path_of(place)


def place_at(address: str) -> WebshopLocation | None:
    """The place of an address, whatever its host; None where the shop has no such page."""
    if len(address) > MAX_ADDRESS_CHARS:
        return None
    try:
        url = urlsplit(address)
        if not url.path.startswith(f"{ROOT}/"):
            return None
        query = {name: values[-1] for name, values in parse_qs(url.query, max_num_fields=10).items()}
        return _place([unquote(part) for part in url.path.removeprefix(f"{ROOT}/").split("/")], query)
    except ValueError:
        return None


def _place(parts: list[str], query: Mapping[str, str]) -> WebshopLocation | None:
    keywords, page = query.get("keywords", ""), _number(query.get("page", "1"))
    options = msgspec.json.decode(query.get("options", "{}"), type=dict[str, str])
    match parts:
        case [goal] if goal:
            return WebshopLocation(goal=goal)
        case ["search_results", goal]:
            return WebshopLocation(goal=goal, kind="results", keywords=keywords, page=page)
        case ["item_page", goal, asin]:
            return WebshopLocation(
                goal=goal, kind="item", asin=asin, keywords=keywords, page=page, options=options
            )
        case ["item_sub_page", goal, asin, name]:
            part = msgspec.convert(name, Part)
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
