"""How the two benchmarks compare a text or an address with what a task asks for.

WebArena's released evaluators and those of WebArena-Lite (VisualAgentBench) differ; every function says where. Both are
checked against `evaluation_harness/evaluators.py` of either release.
"""

import html
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal
from urllib.parse import parse_qs, urlparse

from hindcast.actors.environments.webarena.tokens import is_word, words

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


def shown(text: str, rules: Rules) -> str:
    """The form in which a page's text is compared; WebArena decodes HTML entities, also in a locator's result."""
    return text if rules == "lite" else html.unescape(text)


def equals(reference: str, found: str, rules: Rules) -> bool:
    """`exact_match`: both texts are equal once cleaned."""
    return cleaned(reference, rules) == cleaned(found, rules)


def includes(reference: str, found: str, rules: Rules, *, alone: bool) -> bool:
    """`must_include`: a part of the text, or one of its words where a part could match by chance.

    Lite requires a word wherever the reference is a single one, and counts the parts of a word between slashes too. WebArena
    requires it only where the reference is a single character and, as `alone` says, the only one for an answer.
    """
    wanted, text = cleaned(reference, rules), cleaned(found, rules)
    # a word is a part of its text; most texts need not be split
    if wanted not in text:
        return False
    by_word = alone and len(wanted) == 1 if rules == "webarena" else True
    if not by_word or not is_word(wanted):
        return True
    return any(wanted == word or (rules == "lite" and wanted in word.split("/")) for word in words(text))


def includes_any(reference: str, found: str, rules: Rules, *, alone: bool, on_page: bool) -> bool:
    """`must_include` with ` |OR| ` between alternatives: for a page, and in Lite for an answer too.

    WebArena compares an answer with the literal reference, ` |OR| ` included.
    """
    alternatives = reference.split(ALTERNATIVE) if on_page or rules == "lite" else [reference]
    return any(includes(one, found, rules, alone=alone) for one in alternatives)


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
        wanted, where = [_plain(one) for one in references], _plain(address)
        return where in wanted if note == "EXACT" else any(one in where for one in wanted)
    if note == "EXACT":
        return address.rstrip("/") in [one.rstrip("/") for one in references]
    return _within(references, address)


def _plain(address: str) -> str:
    """The address as Lite compares it: one spelling of this machine, no slash at the end."""
    return address.replace("localhost", "127.0.0.1").removesuffix("/")


def _within(references: Sequence[str], address: str) -> bool:
    place, query = _parts(address)
    if not any(_parts(one)[0] in place for one in references):
        return False
    wanted: dict[str, set[str]] = defaultdict(set)
    for one in references:
        for key, values in _parts(one)[1].items():
            wanted[key].update(values)
    return all(values & set(query.get(key, ())) for key, values in wanted.items())


def _parts(address: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlparse(address.rstrip("/"))
    return parts.netloc + parts.path, parse_qs(parts.query)
