"""How the two benchmarks compare a text or an address with what a task asks for.

WebArena's released evaluators and those of WebArena-Lite (VisualAgentBench) differ; every function says where. Both are
checked against `evaluation_harness/evaluators.py` of either release.

The reference evaluators split with NLTK's `word_tokenize`: sentences first, then the Penn Treebank rules. `words` applies
the same rules to answers and pages, in lower case. It finds ends of sentences without NLTK's trained model: at a period
that ends a word and is followed by white space, unless the word is a known abbreviation, or a number or a single letter
before a word or punctuation.
"""

import html
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal
from urllib.parse import parse_qs, urlparse

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


def tokenize(text: str) -> list[str]:
    """The tokens of a text, in order.

    >>> words("It costs $39.64 (tax: 2%).")
    ['It', 'costs', '$', '39.64', '(', 'tax', ':', '2', '%', ')', '.']
    """
    text = _SENTENCE_END.sub(lambda match: _separated_period(text, match), text)
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
    return len(tokenize(text)) == 1


def _separated_period(text: str, match: re.Match[str]) -> str:
    """Separate the period of a word that ends a sentence."""
    preceding = text[max(0, match.start() - LONGEST) : match.start()]
    words = preceding.split()
    word = _PART.split(words[-1].lower())[-1].lstrip("`#&-,") if words and not preceding[-1].isspace() else ""
    continues = match["next"][0].isalpha() or match["next"].startswith(_PUNCTUATION) or match["next"] == "."
    if _ABBREVIATION.fullmatch(word):
        return match[0]
    if _NUMBER_OR_LETTER.fullmatch(word) and continues and not match["closing"]:
        return match[0]
    return f" . {match['closing']}"


Rules = Literal["webarena", "lite"]
"""The release whose evaluators decide: that of the task file."""
ALTERNATIVE = " |OR| "


def cleaned(text: str, rules: Rules) -> str:
    """Lower case, without one pair of quotes around the whole; WebArena strips white space around it first.

    >>> cleaned(' "Yes" ', "webarena")
    'yes'
    """
    text = text.strip() if rules == "webarena" else text
    for quote in "'\"":
        if text.startswith(quote) and text.endswith(quote):
            text = text[1:-1]
            break
    return text.lower()


def comparable(text: str, rules: Rules) -> str:
    """The form in which a page's text is compared; WebArena decodes HTML entities, also in a locator's result."""
    return text if rules == "lite" else html.unescape(text)


def equals(reference: str, text: str, rules: Rules) -> bool:
    """`exact_match`: both texts are equal once cleaned."""
    return cleaned(reference, rules) == cleaned(text, rules)


def includes(reference: str, full_text: str, rules: Rules, *, alone: bool) -> bool:
    """`must_include`: a part of the text, or one of its words where a part could match by chance.

    Lite requires a word wherever the reference is a single one, and counts the parts of a word between slashes too. WebArena
    requires it only where the reference is a single character and, as `alone` says, the only one for an answer.
    """
    part, text = cleaned(reference, rules), cleaned(full_text, rules)
    # a word is a part of its text; most texts need not be split
    if part not in text:
        return False
    by_word = alone and len(part) == 1 if rules == "webarena" else True
    if not by_word or not is_word(part):
        return True
    return any(part == word or (rules == "lite" and part in word.split("/")) for word in tokenize(text))


def includes_any(reference: str, text: str, rules: Rules, *, alone: bool, on_page: bool) -> bool:
    """`must_include` with ` |OR| ` between alternatives: for a page, and in Lite for an answer too.

    WebArena compares an answer with the literal reference, ` |OR| ` included.
    """
    alternatives = reference.split(ALTERNATIVE) if on_page or rules == "lite" else [reference]
    return any(includes(alternative, text, rules, alone=alone) for alternative in alternatives)


def at_address(reference: str, address: str, note: str, rules: Rules) -> bool:
    """`url_match`: whether an episode ended at one of the addresses, which ` |OR| ` separates.

    `note` is the task's `url_note`: `EXACT`, `GOLD in PRED`, or empty for the release's default: WebArena the latter, Lite
    the former. In Lite, `GOLD in PRED` is a part of the address. In WebArena, host and path must be a part of host and path,
    and each parameter of the query must have one of the references' values. There, a slash that ends the path before a query
    is part of the path.
    """
    references = reference.split(ALTERNATIVE)
    note = note or ("GOLD in PRED" if rules == "webarena" else "EXACT")
    if rules == "lite":
        allowed, reached = (
            [_normalized(each_reference) for each_reference in references],
            _normalized(address),
        )
        return (
            reached in allowed
            if note == "EXACT"
            else any(each_reference in reached for each_reference in allowed)
        )
    if note == "EXACT":
        return address.rstrip("/") in [each_reference.rstrip("/") for each_reference in references]
    return _is_within(references, address)


def _normalized(address: str) -> str:
    """The address as Lite compares it: one spelling of this machine, no slash at the end."""
    return address.replace("localhost", "127.0.0.1").removesuffix("/")


def _is_within(references: Sequence[str], address: str) -> bool:
    location, query = _location_and_query(address)
    if not any(_location_and_query(reference)[0] in location for reference in references):
        return False
    allowed: dict[str, set[str]] = defaultdict(set)
    for reference in references:
        for key, values in _location_and_query(reference)[1].items():
            allowed[key].update(values)
    return all(values & set(query.get(key, ())) for key, values in allowed.items())


def _location_and_query(address: str) -> tuple[str, dict[str, list[str]]]:
    url = urlparse(address.rstrip("/"))
    return url.netloc + url.path, parse_qs(url.query)
