"""Nouns of product titles, by which rewards compare kinds of products.

Upstream uses spaCy (`NOUN`, `PROPN`). Where spaCy and one of its English models are installed, they are used here too.
Otherwise words replace nouns: a title is a string of names, and spaCy takes about nine of ten words with a letter for
nouns. The result names its rule, so that evidence and verdicts can state it.
"""

import importlib
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import msgspec

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
