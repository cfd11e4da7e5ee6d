"""WebShop's reward (arXiv 2207.01206, section 3.2; princeton-nlp/WebShop, `web_agent_site/engine/goal.py`). Pure.

    reward = r_type * (attributes found + options found + [price <= limit]) / (attributes + options + 1)

An attribute is found when it is similar (`similarity`) to one of the product's, or is part of title, bullets or
description. An option is found when a chosen value, reduced to its color, is similar to the wanted option. The wanted
option is the value, reduced to its color. For synthetic goals the released code compares the (name, value) pair
instead: its text, `"('size', 'x-small')"`, or a color if name or value is exactly that color.
r_type is 1; 0.5 if the queries differ, fewer than two parts of the category agree, and at most a fifth of the wanted
title's nouns are shared; 0.1 below a tenth of the nouns; 0 without any. A wanted title without nouns counts as a fifth.
"""

import msgspec

from hindcast.actors.environments.webshop.colours import COLOURS, colour_or_text
from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.nouns import Nouns
from hindcast.actors.environments.webshop.similarity import is_same

ALIKE_TITLE = 0.2
"""Share of the wanted title's nouns above which products are alike; also the share of a title without nouns."""
FAINT_TITLE = 0.1
UNALIKE, FAINT = 0.5, 0.1
"""r_type of products without a sign that they are alike, and of titles with less than `FAINT_TITLE` in common."""


class Bought(msgspec.Struct, frozen=True, kw_only=True):
    """The bought product and options, as rewards compare them."""

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    attributes: tuple[str, ...]
    query: str
    product_category: str
    price: float
    chosen: dict[str, str]
    """Chosen options: name -> value."""


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """A reward and its parts."""

    total: float
    """The reward, in [0, 1]."""
    r_type: float
    """Factor for the kind of product: 1, 0.5, 0.1 or 0."""
    attributes_found: int
    attributes: int
    options_found: int
    options: int
    price_fits: bool


def reward_of(bought: Bought, goal: WebshopGoal, nouns: Nouns) -> Reward:
    """The reward for buying one product when the goal asks for another. A goal names at least one attribute."""
    attributes = sum(_has(bought, attribute) for attribute in goal.attributes)
    chosen = [colour_or_text(value) for value in bought.chosen.values()]
    options = sum(any(is_same(value, wanted) for value in chosen) for wanted in _wanted_options(goal))
    price_fits = bought.price <= goal.price_upper
    kind = type_reward(bought, goal, nouns)
    found = attributes + options + price_fits
    return Reward(
        total=found / (len(goal.attributes) + len(goal.options) + 1) * kind,
        r_type=kind,
        attributes_found=attributes,
        attributes=len(goal.attributes),
        options_found=options,
        options=len(goal.options),
        price_fits=price_fits,
    )


def type_reward(bought: Bought, goal: WebshopGoal, nouns: Nouns) -> float:
    """r_type: whether the product is of the wanted kind."""
    shared = title_overlap(nouns)
    if shared == 0:
        return 0.0
    if shared < FAINT_TITLE:
        return FAINT
    same_category = len(_parts(bought.product_category) & _parts(goal.product_category)) >= 2
    alike = bought.query == goal.query or same_category or shared > ALIKE_TITLE
    return 1.0 if alike else UNALIKE


def title_overlap(nouns: Nouns) -> float:
    """Distinct nouns in both titles divided by the nouns of the wanted one, repetitions counted."""
    if not nouns.wanted:
        return ALIKE_TITLE
    return len(set(nouns.bought) & set(nouns.wanted)) / len(nouns.wanted)


def _has(bought: Bought, attribute: str) -> bool:
    if any(is_same(known, attribute) for known in bought.attributes):
        return True
    return any(
        attribute in text.lower() for text in (bought.title, " ".join(bought.bullets), bought.description)
    )


def _wanted_options(goal: WebshopGoal) -> list[str]:
    """The texts that chosen values are compared with, one for each wanted option."""
    if not goal.option_names:
        return [colour_or_text(value) for value in goal.options]
    return [
        next((color for color in COLOURS if color in pair), str(pair))
        for pair in zip(goal.option_names, goal.options, strict=True)
    ]


def _parts(category: str) -> set[str]:
    return {part.strip() for part in category.split("›")}
