"""Shopping goals: written by people, and made from a product's attributes and options.

A goal is identified by the digest of its content. Upstream identifies it by its number in a list whose price limits are
drawn before the generator is seeded, so that a number means different goals in different processes. Here the digest
seeds the draw of the limit, by the same rule (the larger of two of the four next multiples of ten dollars).
"""

from collections.abc import Iterable, Iterator
from itertools import product as combinations
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from hindcast.actors.environments.webshop.products import ProductEntry, WebshopProduct, read_json
from hindcast.core.errors import SettingsError
from hindcast.core.ids import digest_hex
from hindcast.core.seeds import derive_seed

UNLIMITED = 1_000_000.0
"""Price limit of a goal that names none: nothing costs more."""
STEPS = tuple(10.0 * step for step in range(1, 100))
"""Price limits, in dollars."""
DIGEST_CHARS = 16
TEST, DEV = 500, 1500
"""Ends of the parts of the full set of human goals: test 0-499, dev 500-1499, train from 1500 on."""

Split = Literal["test", "dev", "train"]
SPLITS: tuple[Split, ...] = ("test", "dev", "train")


class WebshopGoal(msgspec.Struct, frozen=True, kw_only=True):
    """A shopping goal: the product, its wanted attributes and options, and the price limit."""

    digest: str
    """Digest of the goal without its price limit, 16 hexadecimal characters."""
    asin: str
    """The product that it was made from; others may satisfy it too."""
    instruction: str
    """The shopper's instruction."""
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """Option values to choose."""
    option_names: tuple[str, ...] = ()
    """Names of `options`, in their order, where the reward compares (name, value) pairs as the released code does; empty
    where it compares values alone.
    """
    price_upper: float
    """Price limit in dollars; `UNLIMITED` where the instruction names none."""
    title: str
    query: str
    product_category: str


def human_goals(products: Iterable[WebshopProduct], path: Path) -> tuple[WebshopGoal, ...]:
    """Goals of `items_human_ins.json`, in order of their digests. Those without an attribute are left out, as upstream.

    Raises SettingsError naming file, product and field.
    """
    written = read_json(path)
    if not isinstance(written, dict):
        raise SettingsError(f"{path} is not WebShop's file of human instructions: an object by product")
    return _in_order(
        goal
        for product in products
        if product.asin in written
        for goal in _written_goals(product, path, written[product.asin])
    )


def synthetic_goals(products: Iterable[WebshopProduct], *, compare_pairs: bool) -> tuple[WebshopGoal, ...]:
    """A goal for every combination of options of every product with an instruction, in order of their digests.

    `compare_pairs`: whether the reward compares (name, value) pairs or values alone. Digests do not depend on it.
    """
    return _in_order(
        _goal(
            product,
            text=f"{product.asked}{_with(names, values)}",
            attributes=product.asked_attributes,
            options=values,
            option_names=tuple(names) if compare_pairs else (),
        )
        for product in products
        if product.asked is not None and product.asked_attributes
        for names in [sorted(product.options)]
        for values in combinations(*(product.options[name] for name in names))
    )


def part_of(goals: tuple[WebshopGoal, ...], split: Split, *, by_product: bool) -> tuple[WebshopGoal, ...]:
    """The goals of one part.

    They are split by number where there are more than `DEV`; else the first fifth is test, the second dev. `by_product`
    counts products in the order of their digests, so that all goals of one product are in one part. Then each product's
    first goal comes first, followed by each one's second.
    """
    if not by_product:
        first, end = bounds_of(len(goals))[split]
        return goals[first:end]
    grouped: dict[str, list[WebshopGoal]] = {}
    for goal in goals:
        grouped.setdefault(digest_hex(goal.asin.encode()), []).append(goal)
    first, end = bounds_of(len(grouped), fixed=False)[split]
    groups = [grouped[key] for key in sorted(grouped)[first:end]]
    rounds = zip_longest(*groups)
    return tuple(goal for goals_of_round in rounds for goal in goals_of_round if goal is not None)


def bounds_of(count: int, *, fixed: bool = True) -> dict[Split, tuple[int, int]]:
    """First number of each part and the one after its last, for `count` goals.

    >>> bounds_of(12_000)
    {'test': (0, 500), 'dev': (500, 1500), 'train': (1500, 12000)}
    >>> bounds_of(100)
    {'test': (0, 20), 'dev': (20, 40), 'train': (40, 100)}
    """
    test, dev = (TEST, DEV) if fixed and count > DEV else (-(-count // 5), -(-2 * count // 5))
    return {"test": (0, test), "dev": (test, dev), "train": (dev, count)}


def price_limit(price: float, digest: str) -> float:
    """The larger of two of the next four limits above a price; `UNLIMITED` where fewer than two are left."""
    higher = [step for step in STEPS if step > price][:4]
    if len(higher) < 2:
        return UNLIMITED
    return max(Random(derive_seed(0, "webshop", "limit", digest)).sample(higher, 2))


def _written_goals(product: WebshopProduct, path: Path, entries: object) -> Iterator[WebshopGoal]:
    if not isinstance(entries, list):
        raise SettingsError(f"{path}: product {product.asin} holds no list of instructions")
    for number, raw in enumerate(entries):
        entry = ProductEntry(path, f"product {product.asin}, instruction {number}", raw)
        attributes = entry.texts("instruction_attributes")
        if attributes:
            yield _goal(
                product,
                text=entry.text("instruction").strip("."),
                attributes=attributes,
                options=entry.texts("instruction_options"),
            )


def _goal(
    product: WebshopProduct,
    *,
    text: str,
    attributes: tuple[str, ...],
    options: tuple[str, ...],
    option_names: tuple[str, ...] = (),
) -> WebshopGoal:
    digest = digest_hex(msgspec.json.encode((product.asin, text, attributes, options)))[:DIGEST_CHARS]
    limit = price_limit(product.price, digest)
    price_text = f", and price lower than {limit:.2f} dollars" if limit != UNLIMITED else ""
    return WebshopGoal(
        digest=digest,
        asin=product.asin,
        instruction=text + price_text,
        attributes=attributes,
        options=options,
        option_names=option_names,
        price_upper=limit,
        title=product.title,
        query=product.query,
        product_category=product.product_category,
    )


def _with(names: list[str], values: tuple[str, ...]) -> str:
    options_text = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
    return f" with {options_text}" if options_text else ""


def _in_order(goals: Iterable[WebshopGoal]) -> tuple[WebshopGoal, ...]:
    unique = {goal.digest: goal for goal in goals}
    return tuple(sorted(unique.values(), key=lambda goal: goal.digest))
