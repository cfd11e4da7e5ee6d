"""WebShop's reward (arXiv 2207.01206, section 3.2; princeton-nlp/WebShop, `web_agent_site/engine/goal.py`). Pure.

    reward = r_type * (attributes found + options found + [price <= limit]) / (attributes + options + 1)

An attribute is found when it is similar (`similarity`) to one of the product's, or is part of title, bullets or
description. An option is found when a chosen value, reduced to its color, is similar to the wanted option. The wanted
option is the value, reduced to its color. For synthetic goals the released code compares the (name, value) pair
instead: its text, `"('size', 'x-small')"`, or a color if name or value is exactly that color.
r_type is 1; 0.5 if the queries differ, fewer than two parts of the category agree, and at most a fifth of the wanted
title's nouns are shared; 0.1 below a tenth of the nouns; 0 without any. A wanted title without nouns counts as a fifth.

Colour words are tried in the order of upstream's list (`web_agent_site/engine/normalize.py`): another list or order gives
other rewards. Similarity is `token_set_ratio` as thefuzz 0.19 computes it with python-Levenshtein. RapidFuzz has the same
ratio as a float, and leaves the preparation of texts to its caller. Thefuzz drops the characters from U+0080 to U+00FF,
keeps underscores, and rounds to a whole number: 85.2 counts as 85, which is not above 85.

Nouns are spaCy's (`NOUN`, `PROPN`), as upstream, where spaCy and one of its English models are installed. Otherwise words
replace nouns: a title is a string of names, and spaCy takes about nine of ten words with a letter for nouns. The result
names its rule, so that evidence and verdicts can state it.
"""

import importlib
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import msgspec
from rapidfuzz.fuzz import token_set_ratio

from hindcast.actors.environments.webshop.goals import WebshopGoal

_IN_ORDER = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom
mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire
seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white
wine yellow
"""
COLOURS = tuple(_IN_ORDER.split())


def colour_or_text(option: str) -> str:
    """The first colour of the list that the text contains, also inside a word; the text itself where there is none.

    >>> colour_or_text("dark blue"), colour_or_text("steelivy fuchsia"), colour_or_text("x-large")
    ('blue', 'fuchsia', 'x-large')
    """
    return next((colour for colour in COLOURS if colour in option), option)


MATCH_ABOVE = 85
"""Texts with a larger ratio count as the same."""

_BLANK = re.compile(r"\W")
_LATIN_1 = dict.fromkeys(range(0x80, 0x100))


def similarity(first: str, second: str) -> int:
    """Similarity of two texts in percent, independent of the order and number of their words; 0 for an empty one.

    >>> similarity("essential oils", "essential oil"), similarity("powder snow", "cool powder snow")
    (96, 100)
    """
    return round(token_set_ratio(_prepared(first), _prepared(second)))


def is_same(first: str, second: str) -> bool:
    """Whether two texts are similar enough to count as the same."""
    return similarity(first, second) > MATCH_ABOVE


def _prepared(text: str) -> str:
    return _BLANK.sub(" ", text.translate(_LATIN_1)).lower().strip()


SPACY_MODELS = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm")
"""The first installed one is used; the first is upstream's."""
WORDS = "words/1"
"""Name of the rule without spaCy. A changed rule needs another name."""

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s\b")
_NEVER_NOUNS = """
a about after all an and any are as at be been before between both but by can could do does each etc every for from
go had has have her his how if in include included includes including into is it its made make makes may more most my
no nor not of off on one only or our out over own per so such than that the their them then these they this those
three through to too two under until up use used using very via was we were what when where which while who will with
within without you your
"""
_NEVER = frozenset(_NEVER_NOUNS.split())
"""Words that are hardly ever nouns: articles, prepositions, conjunctions, pronouns, auxiliaries, number words."""


class Nouns(msgspec.Struct, frozen=True, kw_only=True):
    """Nouns of the titles that a reward compares, in lower case and in the titles' order, with repetitions."""

    rule: str
    """`words/1`, or spaCy's model and version."""
    bought: tuple[str, ...]
    wanted: tuple[str, ...]


def nouns_of(*, bought: str, wanted: str) -> Nouns:
    """The nouns of two titles, by the best installed rule."""
    rule, find = _rule()
    return Nouns(rule=rule, bought=find(bought), wanted=find(wanted))


def words_for_nouns(title: str) -> tuple[str, ...]:
    """Words with a letter, without those that are hardly ever nouns.

    >>> words_for_nouns("Women's 2-Pack of Portable Lamps, 12 oz")
    ('women', 'pack', 'portable', 'lamps', 'oz')
    """
    words = _WORD.findall(_POSSESSIVE.sub("", title).lower())
    return tuple(word for word in words if word not in _NEVER and any(map(str.isalpha, word)))


@lru_cache(maxsize=1)
def _rule() -> tuple[str, Callable[[str], tuple[str, ...]]]:
    model = next((name for name in SPACY_MODELS if find_spec("spacy") and find_spec(name)), None)
    if model is None:
        return WORDS, words_for_nouns
    spacy: Any = importlib.import_module("spacy")
    parse = spacy.load(model)

    def find(title: str) -> tuple[str, ...]:
        return tuple(token.text.lower() for token in parse(title) if token.pos_ in ("NOUN", "PROPN"))

    return f"{model}/{parse.meta['version']}", find


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
    values = [colour_or_text(value) for value in bought.chosen.values()]
    options = sum(any(is_same(value, option) for value in values) for option in _wanted_options(goal))
    price_fits = bought.price <= goal.price_upper
    kind = type_reward(bought, goal, nouns)
    points = attributes + options + price_fits
    return Reward(
        total=points / (len(goal.attributes) + len(goal.options) + 1) * kind,
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
    same_category = len(_levels(bought.product_category) & _levels(goal.product_category)) >= 2
    alike = bought.query == goal.query or same_category or shared > ALIKE_TITLE
    return 1.0 if alike else UNALIKE


def title_overlap(nouns: Nouns) -> float:
    """Distinct nouns in both titles divided by the nouns of the wanted one, repetitions counted."""
    if not nouns.wanted:
        return ALIKE_TITLE
    return len(set(nouns.bought) & set(nouns.wanted)) / len(nouns.wanted)


def _has(bought: Bought, attribute: str) -> bool:
    if any(is_same(own_attribute, attribute) for own_attribute in bought.attributes):
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


def _levels(category: str) -> set[str]:
    return {level.strip() for level in category.split("›")}
