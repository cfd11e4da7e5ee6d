"""WebShop's files for tests: a small set made here in the same schema, and the released small set where it is at hand.

The released set is looked for in the folder that HINDCAST_WEBSHOP names, or in `../shared/data/webshop` beside the
checkout.
"""

import gzip
import json
import os
from itertools import product as combinations
from pathlib import Path
from random import Random
from typing import Any

from hindcast.core.settings.schema import SiteSettings

ITEMS, INSTRUCTIONS = "items_shuffle_1000.json.gz", "items_ins_v2_1000.json.gz"
KINDS = {
    "lip balm": "Beauty › Skin Care › Lip Care",
    "body lotion": "Beauty › Skin Care › Body",
    "floor lamp": "Home › Lighting › Lamps",
    "desk lamp": "Home › Lighting › Lamps",
    "running shoes": "Fashion › Women › Shoes",
}
MAKERS = ("Acme", "Borealis", "Cirrus", "Dover")
ATTRIBUTES = ("long lasting", "easy use", "non slip", "eco friendly", "high quality", "natural ingredients")
COLOURS, SIZES = ("Black", "Dark Blue", "Rose Gold"), ("Small", "Large/Wide", "X-Large")


def released() -> SiteSettings | None:
    """Settings for the released small set; None where it is not at hand."""
    beside = Path(__file__).parents[3] / "shared" / "data" / "webshop"
    folder = Path(os.environ.get("HINDCAST_WEBSHOP") or beside)
    if not (folder / ITEMS).is_file():
        return None
    return SiteSettings(
        webshop_items=str(folder / ITEMS),
        webshop_instructions=str(folder / INSTRUCTIONS),
        webshop_mode="text",
    )


def written(folder: Path, *, mode: str = "text") -> SiteSettings:
    """Write the small set, products compressed, and return settings that name it."""
    products, attributes, human = small_set()
    items = folder / "items.json.gz"
    items.write_bytes(gzip.compress(json.dumps(products).encode()))
    for name, content in (("instructions", attributes), ("human", human)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return SiteSettings.model_validate(
        {
            "webshop_items": str(items),
            "webshop_instructions": str(folder / "instructions.json"),
            "webshop_human": str(folder / "human.json"),
            "webshop_mode": mode,
        }
    )


def small_set() -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """Products, attributes with generated instructions, instructions by people: always the same."""
    random = Random(7)
    products: list[dict[str, Any]] = []
    attributes: dict[str, Any] = {}
    human: dict[str, Any] = {}
    prices: list[Any] = ["$12.50", "$10.00 to $20.50", [34.0], [5.0, 15.0], None, ""]
    named = list(combinations(KINDS, MAKERS, ("Classic", "Deluxe", "Mini")))
    for number, (kind, maker, line) in enumerate(named):
        asin = f"B{number:09d}"
        has = random.sample(ATTRIBUTES, 3)
        products.append(
            {
                "asin": asin,
                "name": f"{maker} {line} {kind.title()}",
                "full_description": f"A {kind} by {maker}. "
                + "It does what it should do, day after day. " * 8,
                "small_description": [f"{has[0].upper()}: made to be {has[0]}", "Ships at once"]
                if number % 3
                else "",
                "pricing": prices[number % len(prices)],
                "images": ["https://example.org/picture.jpg"],
                "product_category": KINDS[kind],
                "category": KINDS[kind].split(" ")[0].lower(),
                "query": f" {kind.title()} ",
                "average_rating": "",
                "customization_options": _options(number),
            }
        )
        attributes[asin] = {"attributes": has}
        if number % 2 == 0:
            attributes[asin] |= {
                "instruction": f"Find me {has[0]}, {has[1]} {kind}",
                "instruction_attributes": has[:2],
            }
            human[asin] = [
                _by_people(kind, has[1], number),
                {**_by_people(kind, "", number), "instruction_attributes": []},
            ]
    return products, attributes, human


def _options(number: int) -> Any:
    if number % 4 == 3:
        return ""
    sizes = [{"value": size, "image": None} for size in SIZES]
    return {"Color": [{"value": colour} for colour in COLOURS], "Size": sizes if number % 4 else None}


def _by_people(kind: str, attribute: str, number: int) -> dict[str, Any]:
    return {
        "instruction": f"i am looking for a {kind} that is {attribute}{', well-made' * (20 if number % 8 == 0 else 0)}.",
        "instruction_attributes": [attribute],
        "instruction_options": ["rose gold"] if number % 4 == 0 else [],
    }
