"""Words of an answer, as the benchmark's `must_include` counts them.

The reference evaluators split with NLTK's `word_tokenize`: sentences first, then the Penn Treebank rules. This module
applies the same rules to answers and pages, in lower case. It finds ends of sentences without NLTK's trained model: at a
period that ends a word and is followed by white space, unless the word is a known abbreviation, or a number or a single
letter before a word or punctuation.
"""

import re

LONGEST = 40
"""Characters before a period that are examined: more than any abbreviation or number has."""
_ABBREVIATION = re.compile(
    r"mrs?|ms|messrs|dr|prof|gen|maj|col|sen|reps?|[js]r|st|ave|ft|yr|mg|co|corp|ltd|inc|bros|vs|"
    r"jan|feb|aug|sept?|oct|nov|dec|tues|wed|fri|[ap]\.m|u\.[skn]|d\.c|n\.[yj]|ph\.d"
)
_NUMBER_OR_LETTER = re.compile(r"[.,]?\d[\d,.-]*|[^\W\d_]")
_SENTENCE_END = re.compile(r"""(?<!\.)\.(?P<closing>["'”’)\]}>]*)(?=\s+(?P<next>\S+))""")
_PART = re.compile(r"[)\";}\]*:@({\[]|(?=['!?])")
"""Separators of words in the search for sentences."""
_PUNCTUATION = (";", ":", ",", "!", "?")
_APART = re.compile(r"[«»“”„‘’]|`+|\.{2,}|--|[;@#$%&?!*\[\](){}<>‒–—―]")
_COMMA = re.compile(r"([:,])([^\d]|$)")
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
    text = _APART.sub(r" \g<0> ", text)
    text = _COMMA.sub(r" \1 \2", text)
    text = _QUOTES.sub(r" \g<0> ", text)
    text = _CLITIC.sub(r" \1", text)
    return text.split()


def is_word(text: str) -> bool:
    """Whether a text is one token.

    >>> is_word("39.64"), is_word("@vinta"), is_word("new york")
    (True, False, False)
    """
    return len(words(text)) == 1


def _ended(text: str, found: re.Match[str]) -> str:
    """Separate the period of a word that ends a sentence."""
    near = text[max(0, found.start() - LONGEST) : found.start()]
    before = near.split()
    word = _PART.split(before[-1].lower())[-1].lstrip("`#&-,") if before and not near[-1].isspace() else ""
    goes_on = found["next"][0].isalpha() or found["next"].startswith(_PUNCTUATION) or found["next"] == "."
    if _ABBREVIATION.fullmatch(word):
        return found[0]
    if _NUMBER_OR_LETTER.fullmatch(word) and goes_on and not found["closing"]:
        return found[0]
    return f" . {found['closing']}"
