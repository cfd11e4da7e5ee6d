"""Reads WebShop's original product files: `items_*.json` with products, `items_ins_*.json` with their attributes.

Both may be compressed (`.json.gz`). An invalid file is refused with file, item and field.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from hindcast.core.bounded_read import TooLarge, read_file_bounded
from hindcast.core.errors import SettingsError
from hindcast.core.seeds import derive_seed

UNPRICED = 100.0
"""Price of a product without one, in dollars."""
UNKNOWN_ATTRIBUTES = ("DUMMY_ATTR",)
"""Attributes of a product that is missing from the attribute file."""
MOST_FILE_BYTES = 16 * 1024**3
"""Most decompressed bytes of a file; the released one with all 1.18 million products is the largest."""
ASIN_CHARS = 10
"""Products with a longer number are left out, and those whose number is `nan`."""


class WebshopProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product as pages show it and rewards compare it."""

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    """At least one, which may be empty."""
    price: float
    """Price in dollars that limits are compared with. Of a range, one price that its number determines."""
    price_tag: str
    """`$12.5`, or `$10.0 to $20.0`."""
    options: dict[str, tuple[str, ...]]
    """Name in lower case -> values in lower case, in the file's order, each once."""
    attributes: tuple[str, ...]
    query: str
    """The query that found the product when the data were collected, in lower case."""
    category: str
    product_category: str
    """Path of categories with `›` between them."""
    asked: str | None
    """The generated instruction about it, where there is one."""
    asked_attributes: tuple[str, ...]
    """The attributes in that instruction."""

    def offers(self, options: dict[str, str]) -> bool:
        """Whether these options exist: an agent may type an address with any options."""
        return all(value in self.options.get(name, ()) for name, value in options.items())


def read_products(items: Path, attributes: Path) -> tuple[WebshopProduct, ...]:
    """Every product in the items file's order, each number once. Raises SettingsError."""
    attributes_by_product = read_json(attributes)
    if not isinstance(attributes_by_product, dict):
        raise SettingsError(
            f"{attributes} holds a {_kind(attributes_by_product)}; WebShop's attribute file is an object by product"
        )
    entries = read_json(items)
    if not isinstance(entries, list):
        raise SettingsError(f"{items} holds a {_kind(entries)}; WebShop's items file is a list of products")
    products: dict[str, WebshopProduct] = {}
    for number, raw in enumerate(entries):
        asin = ProductEntry(items, f"item {number}", raw).text("asin")
        if asin == "nan" or len(asin) > ASIN_CHARS or asin in products:
            continue
        about = (
            ProductEntry(attributes, f"product {asin}", attributes_by_product[asin])
            if asin in attributes_by_product
            else None
        )
        products[asin] = _product(ProductEntry(items, f"item {number} ({asin})", raw), asin, about)
    if not products:
        raise SettingsError(f"{items} holds no product")
    return tuple(products.values())


def read_json(path: Path) -> Any:
    """Parse a JSON file, decompressed where its name ends in `.gz`. Raises SettingsError."""
    try:
        return json.loads(read_file_bounded(path, most_bytes=MOST_FILE_BYTES))
    except (OSError, EOFError, TooLarge) as error:
        raise SettingsError(
            f"WebShop's file {path} cannot be read: {error}. sites.webshop_items and sites.webshop_instructions are "
            "paths of its .json or .json.gz files"
        ) from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"WebShop's file {path} is not JSON: {error}") from error


class ProductEntry:
    """One entry of a file; an invalid field is refused with file, entry and field."""

    def __init__(self, path: Path, name: str, raw: object) -> None:
        self._path = f"{path}: {name}"
        if not isinstance(raw, dict):
            raise SettingsError(f"{self._path} is a {_kind(raw)}, not an object")
        self._raw: dict[str, Any] = raw

    def get(self, field: str) -> Any:
        """The field's value, None where it is missing."""
        return self._raw.get(field)

    def refuse(self, field: str, expected: str) -> SettingsError:
        """The error for an invalid field."""
        if field not in self._raw:
            return SettingsError(f"{self._path} has no field {field!r}; expected is {expected}")
        value_text = repr(self._raw[field])
        value_text = value_text if len(value_text) <= 80 else f"{value_text[:79]}…"
        return SettingsError(f"{self._path}: {field!r} is {value_text}; expected is {expected}")

    def text(self, field: str) -> str:
        """A required text."""
        value = self.get(field)
        if not isinstance(value, str):
            raise self.refuse(field, "a text")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """A required list of texts."""
        value = self.get(field)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self.refuse(field, "a list of texts")
        return tuple(value)


def _product(item: ProductEntry, asin: str, about: ProductEntry | None) -> WebshopProduct:
    bullets = item.get("small_description")
    prices = _prices(item)
    instruction = about.get("instruction") if about else None
    if about and instruction is not None and not isinstance(instruction, str):
        raise about.refuse("instruction", "a text")
    return WebshopProduct(
        asin=asin,
        title=item.text("name"),
        description=item.text("full_description"),
        bullets=(item.texts("small_description") or ("",)) if isinstance(bullets, list) else (bullets or "",),
        price=_one_price(asin, prices),
        price_tag=" to ".join(f"${price}" for price in prices),
        options=dict(_options(item)),
        attributes=about.texts("attributes")
        if about and about.get("attributes") is not None
        else UNKNOWN_ATTRIBUTES,
        query=item.text("query").lower().strip(),
        category=item.text("category"),
        product_category=item.text("product_category"),
        asked=instruction,
        asked_attributes=about.texts("instruction_attributes") if about and instruction is not None else (),
    )


def _prices(item: ProductEntry) -> tuple[float, ...]:
    """One price, or the lowest and the highest: from a list of numbers, or `$10.00 to $20.00`."""
    pricing = item.get("pricing")
    if not pricing:
        return (UNPRICED,)
    if isinstance(pricing, str):
        digits = [re.sub(r"[^\d.]", "", amount) for amount in pricing.split("$")[1:]]
        if digits and all(re.fullmatch(r"\d+(\.\d+)?|\.\d+", number) for number in digits):
            return tuple(float(number) for number in digits[:2])
    elif isinstance(pricing, list) and all(
        isinstance(number, int | float) and not isinstance(number, bool) for number in pricing
    ):
        return tuple(float(number) for number in pricing[:2])
    raise item.refuse("pricing", "a list of numbers, or a text such as '$10.00 to $20.00'")


def _one_price(asin: str, prices: tuple[float, ...]) -> float:
    return (
        prices[0] if len(prices) == 1 else Random(derive_seed(0, "webshop", "price", asin)).uniform(*prices)
    )


def _options(item: ProductEntry) -> Iterator[tuple[str, tuple[str, ...]]]:
    customization = item.get("customization_options")
    if not customization:
        return
    if not isinstance(customization, dict):
        raise item.refuse("customization_options", "an object of lists, or nothing")
    for name, contents in customization.items():
        if contents is None:
            continue
        if not isinstance(contents, list) or not all(
            isinstance(content, dict) and isinstance(content.get("value"), str) for content in contents
        ):
            raise item.refuse(
                "customization_options", f"under {name!r} a list of objects with a text 'value'"
            )
        values = (content["value"].strip().replace("/", " | ").lower() for content in contents)
        yield name.lower(), tuple(dict.fromkeys(values))


def _kind(value: object) -> str:
    names = {"dict": "object", "str": "text", "NoneType": "null"}
    return names.get(type(value).__name__, type(value).__name__)
