"""`token_set_ratio` as thefuzz 0.19 computes it with python-Levenshtein, which WebShop's reward calls.

RapidFuzz has the same ratio as a float, and leaves the preparation of texts to its caller. Thefuzz drops the characters
from U+0080 to U+00FF, keeps underscores, and rounds to a whole number: 85.2 counts as 85, which is not above 85.
"""

import re

from rapidfuzz.fuzz import token_set_ratio

MATCH_ABOVE = 85
"""Texts with a larger ratio count as the same."""

_BLANK = re.compile(r"\W")
_LATIN_1 = dict.fromkeys(range(0x80, 0x100))


def similarity(one: str, other: str) -> int:
    """Similarity of two texts in percent, independent of the order and number of their words; 0 for an empty one.

    >>> similarity("essential oils", "essential oil"), similarity("powder snow", "cool powder snow")
    (96, 100)
    """
    return round(token_set_ratio(_prepared(one), _prepared(other)))


def is_same(one: str, other: str) -> bool:
    """Whether two texts are similar enough to count as the same."""
    return similarity(one, other) > MATCH_ABOVE


def _prepared(text: str) -> str:
    return _BLANK.sub(" ", text.translate(_LATIN_1)).lower().strip()
