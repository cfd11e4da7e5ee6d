"""Where a shopper is. The address says all of it, as upstream's: goal, keywords, page, product, chosen options.

So the shop keeps no sessions: equal addresses show equal pages, visits cannot touch each other, and the address of the
last page says what was bought.
"""

import json
from typing import Literal
from urllib.parse import quote, unquote

import msgspec

PlaceKind = Literal["index", "results", "item", "part", "done"]
Part = Literal["Description", "Features", "Reviews", "Attributes"]
PARTS: tuple[Part, ...] = ("Description", "Features", "Reviews", "Attributes")
"""A product's sub-pages."""
ROOT = "/webshop"
"""Begins every path, so that the store's server can show both shops."""
MAX_PATH_CHARS = 8_000


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One page of one goal's shop. What a kind of page does not have is left at its default."""

    goal: str
    """The goal's digest."""
    kind: PlaceKind = "index"
    keywords: str = ""
    page: int = 1
    """Of the results, from 1."""
    asin: str = ""
    part: Part = "Description"
    options: dict[str, str] = {}
    """What is chosen."""


def path_to(place: Place) -> str:
    """The path that `place_at` reads back.

    >>> path_to(Place(goal="ab", kind="item", asin="B01", keywords="red mug", options={"size": "s"}))
    '/webshop/item_page/ab/B01/red%20mug/1/%7B%22size%22%3A%22s%22%7D'
    """
    options = json.dumps(place.options, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    match place.kind:
        case "index":
            parts = [place.goal]
        case "results":
            parts = ["search_results", place.goal, place.keywords, str(place.page)]
        case "item":
            parts = ["item_page", place.goal, place.asin, place.keywords, str(place.page), options]
        case "part":
            parts = [
                "item_sub_page", place.goal, place.asin, place.keywords, str(place.page), place.part, options
            ]  # fmt: skip
        case "done":
            parts = ["done", place.goal, place.asin, options]
    return "/".join((ROOT, *(quote(part, safe="") for part in parts)))


def place_at(path: str) -> Place | None:
    """The place of a path as it stands in an address; None where the shop has no such page."""
    if len(path) > MAX_PATH_CHARS or not path.startswith(f"{ROOT}/"):
        return None
    parts = [unquote(part) for part in path.removeprefix(f"{ROOT}/").split("/")]
    try:
        match parts:
            case [goal] if goal:
                return Place(goal=goal)
            case ["search_results", goal, keywords, page]:
                return Place(goal=goal, kind="results", keywords=keywords, page=_number(page))
            case ["item_page", goal, asin, keywords, page, options]:
                return Place(
                    goal=goal, kind="item", asin=asin, keywords=keywords, page=_number(page), options=_options(options)
                )  # fmt: skip
            case ["item_sub_page", goal, asin, keywords, page, part, options]:
                return Place(
                    goal=goal,
                    kind="part",
                    asin=asin,
                    keywords=keywords,
                    page=_number(page),
                    part=msgspec.convert(part, Part),
                    options=_options(options),
                )
            case ["done", goal, asin, options]:
                return Place(goal=goal, kind="done", asin=asin, options=_options(options))
    except ValueError:
        return None
    return None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and int(text) > 0):
        raise ValueError(f"{text!r} is no number of a page")
    return int(text)


def _options(text: str) -> dict[str, str]:
    return msgspec.json.decode(text, type=dict[str, str])
