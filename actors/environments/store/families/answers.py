"""How answers are compared with the truth: by numbers or by words, never by similarity."""

import re
from collections.abc import Iterable
from decimal import Decimal

from hindcast.actors.environments.store.families.base import CheckResult, VisitEnd
from hindcast.actors.environments.store.families.view import UNABLE

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[a-z0-9.]*[a-z0-9]")


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def mentions(text: str, phrase: str) -> bool:
    """Whether the words of a phrase occur together in a text."""
    inside, sought = _words(text), _words(phrase)
    return any(inside[i : i + len(sought)] == sought for i in range(len(inside) - len(sought) + 1))


def check_number(answer: str | None, expected: str) -> CheckResult:
    """The answer contains the expected number and no other: `$24.50`, `24.5` and `It costs 24.50` are equal."""
    if answer is None:
        return CheckResult(False, f"no answer was given, expected {expected}")
    given = {Decimal(number) for number in _NUMBER.findall(answer[:200].replace(",", ""))}
    wanted = Decimal(expected.lstrip("$"))
    return CheckResult(given == {wanted}, f"expected the number {expected}, the answer is {answer[:80]!r}")


def check_words(answer: str | None, expected: str, others: Iterable[str]) -> CheckResult:
    """The answer mentions the expected words and none of the other possible answers."""
    if answer is None:
        return CheckResult(False, f"no answer was given, expected {expected}")
    right = mentions(answer, expected)
    wrong = [other for other in others if other != expected and mentions(answer, other)]
    return CheckResult(right and not wrong, f"expected {expected!r}, the answer is {answer[:80]!r}")


def is_unable(answer: str | None) -> bool:
    """Whether an answer says that the task cannot be done."""
    return answer is not None and answer.strip().strip(".").lower() == UNABLE.lower()


def at_the_end(ending: VisitEnd) -> int:
    """The ordinal of a goal that an answer reaches: one past the last fact."""
    return len(ending.journal) + 1
