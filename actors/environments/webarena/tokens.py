"""Words of an answer, as the benchmark's `must_include` counts them.

The reference evaluators split with NLTK's `word_tokenize`: sentences first, then the Penn Treebank rules. These are the
same rules for what answers and pages hold. Where a sentence ends is decided without NLTK's trained model: at a period
that ends a word and is followed by white space, unless the word is a single letter, a known abbreviation, or a number
before a letter.
"""

import re

LONGEST = 40
"""Characters before a period that are looked at: more than any abbreviation or number has."""
_KEEPS_PERIOD = re.compile(
    r"[a-z]|mrs?|ms|dr|prof|st|[js]r|inc|ltd|co|corp|vs|etc|e\.g|i\.e|u\.s|[ap]\.m|no|"
    r"jan|feb|mar|apr|aug|sept|oct|nov|dec"
)
_NUMBER = re.compile(r"[$-]?[\d.,-]*\d")
_SENTENCE_END = re.compile(r"""(?<!\.)\.(?P<closing>["'”’)\]}>]*)(?=\s+(?P<next>\S))""")
_APART = re.compile(r"[«»“”„‘’]|`+|\.{2,}|--|[;@#$%&?!*\[\](){}<>‒–—―]")
_COMMA = re.compile(r"[:,](?!\d)")
_QUOTES = re.compile(r"''|\"")
_CLITIC = re.compile(r"(?<=[^'\s])('s|'m|'d|'ll|'re|'ve|n't|')(?=\s|$)", re.IGNORECASE)
_OPENING = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", re.IGNORECASE)
_LAST_PERIOD = re.compile(r"(?<!\.)\.(?=[\]\[(){}<>\"'»”’\s]*$)")


def words(text: str) -> list[str]:
    """The tokens of a text, in order.

    >>> words("It costs $39.64 (tax: 2%).")
    ['It', 'costs', '$', '39.64', '(', 'tax', ':', '2', '%', ')', '.']
    """
    text = _SENTENCE_END.sub(lambda found: _ended(text, found), text)
    text = _LAST_PERIOD.sub(" . ", text)
    text = _OPENING.sub("' ", text)
    for rule in (_APART, _COMMA, _QUOTES):
        text = rule.sub(r" \g<0> ", text)
    text = _CLITIC.sub(r" \1", text)
    return text.split()


def is_word(text: str) -> bool:
    """Whether a text is one token.

    >>> is_word("39.64"), is_word("@vinta"), is_word("new york")
    (True, False, False)
    """
    return len(words(text)) == 1


def _ended(text: str, found: re.Match[str]) -> str:
    """The period of a word that ends a sentence stands apart."""
    near = text[max(0, found.start() - LONGEST) : found.start()]
    before = near.split()
    word = before[-1].lower().lstrip("([{<\"'") if before and not near[-1].isspace() else ""
    if _KEEPS_PERIOD.fullmatch(word) or (_NUMBER.fullmatch(word) and found["next"].isalpha()):
        return found[0]
    return f" . {found['closing']}"
