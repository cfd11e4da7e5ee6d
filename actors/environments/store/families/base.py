"""Interface of a task family, and what all families share: the visit's record, how answers are compared with the truth, and
how a demonstrator reads a page.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from random import Random
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs, urlsplit

import msgspec

from hindcast.actors.environments.store.catalogue import Catalogue
from hindcast.actors.environments.store.session import AnyFact, Listed, VisitorState, apply
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Observation

PRESSABLE = ("link", "button", "clickable")


class PageView:
    """One observation, with look-ups."""

    def __init__(self, observation: Observation) -> None:
        self.nodes = observation.page.nodes
        address = urlsplit(observation.page.url)
        self.path = address.path or "/"
        self._query = parse_qs(address.query)

    def query_parameter(self, name: str) -> str:
        """A parameter of the page's address."""
        return self._query.get(name, [""])[0]

    def _actionable(self, kinds: tuple[str, ...], after: Node | None = None) -> Iterator[Node]:
        reached = after is None
        for node in self.nodes:
            if reached and node.id is not None and not node.disabled and node.kind in kinds:
                yield node
            reached = reached or node is after

    def press(self, text: str, *, after: Node | None = None) -> Node | None:
        """A link or button whose text is this or begins with it and a space."""
        for node in self._actionable(PRESSABLE, after):
            if node.text == text or node.text.startswith(f"{text} "):
                return node
        return None

    def exactly(self, text: str) -> Node | None:
        """A link or button with exactly this text."""
        return next((node for node in self._actionable(PRESSABLE) if node.text == text), None)

    def field(self, label: str, *, after: Node | None = None) -> Node | None:
        """An input, textarea or select by its label."""
        for node in self._actionable(("input", "textarea", "select"), after):
            if label in (node.text, node.attributes.get("aria-label"), node.attributes.get("placeholder")):
                return node
        return None

    def radio(self, label: str) -> Node | None:
        """A radio button by its label."""
        return next((node for node in self._actionable(("radio",)) if node.text.strip() == label), None)

    def find(self, pattern: str) -> str | None:
        """First group of the first node whose text matches entirely."""
        for node in self.nodes:
            matched = re.fullmatch(pattern, node.text.strip())
            if matched:
                return matched.group(1)
        return None

    def says(self, text: str) -> bool:
        """Whether some node's text contains this."""
        return any(text in node.text for node in self.nodes)

    @property
    def cart_count(self) -> int:
        """Pieces in the cart, by the page's header."""
        return int(self.find(r"Cart \((\d+)\)") or 0)


def click(node: Node | None) -> Action:
    """Click the node; scroll down when it is not visible."""
    if node is None:
        return Action(name="Scroll Down")
    return Action(name="Click", element=node.id)


def fill(node: Node | None, text: str, *, name: str = "Type") -> Action:
    """Type, search or select; scroll down when the element is not visible."""
    if node is None:
        return Action(name="Scroll Down")
    return Action(name=name, element=node.id, argument=text)


def answer(text: str) -> Action:
    """End with an answer."""
    return Action(name="exit", argument=text)


DONE = answer("done")
"""How a demonstrator ends when no answer is asked."""
UNABLE = "N/A"
"""The answer to an impossible task."""


Goal: TypeAlias = dict[str, Any]


class VisitEnd:
    """The end of a visit: the state on arrival, the journal, the answer."""

    def __init__(
        self, catalogue: Catalogue, *, opening: VisitorState, journal: Sequence[AnyFact], answer: str | None
    ) -> None:
        self.catalogue = catalogue
        self.opening = opening
        self.journal = tuple(journal)
        self.answer = answer

    @cached_property
    def states(self) -> tuple[VisitorState, ...]:
        """States after 0, 1, 2 … facts."""
        states = [self.opening]
        for fact in self.journal:
            states.append(apply(states[-1], fact))
        return tuple(states)

    @property
    def state(self) -> VisitorState:
        """State after the whole journal."""
        return self.states[-1]

    def first_facts(self, ordinal: int) -> "VisitEnd":
        """The visit after its first `ordinal` facts, without an answer."""
        return VisitEnd(self.catalogue, opening=self.opening, journal=self.journal[:ordinal], answer=None)

    def opened(self, part: str = "product") -> dict[int, None]:
        """Products whose page, or whose sub-page of this name, was opened, in order."""
        return {fact.product: None for _, fact in self.facts("viewed") if fact.part == part}

    def products_shown(self) -> dict[int, None]:
        """Products whose price and rating a page showed, in a list or alone, in order."""
        products: dict[int, None] = {}
        for _, fact in self.facts("listed", "viewed"):
            if isinstance(fact, Listed):
                products |= dict.fromkeys(fact.shown)
            elif fact.part == "product":
                products[fact.product] = None
        return products

    def facts(self, *kinds: str) -> Iterator[tuple[int, Any]]:
        """(ordinal, fact) of the named kinds, in order."""
        for ordinal, fact in enumerate(self.journal, start=1):
            if fact.__struct_config__.tag in kinds:
                yield ordinal, fact


class CheckResult(NamedTuple):
    """The result of a check."""

    success: bool
    reason: str
    """One sentence that names the deciding condition."""


class ReachedGoal(NamedTuple):
    """A goal that a visit reached."""

    goal: Goal
    ordinal: int
    """Number of the fact that first reached it; one past the last fact when the answer did."""


class StoreFamily(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of task. All functions are pure."""

    name: str
    max_steps: int
    draw: Callable[[Catalogue, VisitorState, Random], Goal]
    """Draw a goal that can be reached from this opening state."""
    say: Callable[[Goal, Random], str]
    """Phrase an instruction for a goal, in one of several ways."""
    check: Callable[[Goal, VisitEnd], CheckResult]
    """Whether a visit reached a goal."""
    act: Callable[[Goal, PageView, Sequence[Action]], Action]
    """The next action of the scripted demonstrator."""
    reached: Callable[[VisitEnd], Iterator[ReachedGoal]]
    """Every goal of this family that a visit reached, in the order of ordinals."""


def phrased(*templates: str, words: Callable[[Goal], Goal] = dict) -> Callable[[Goal, Random], str]:
    """Make the `say` of a family: one of several templates, filled with the goal's values or with those of `words`."""

    def say(goal: Goal, random: Random) -> str:
        return random.choice(templates).format(**words(goal))

    return say


class NothingToAsk(ValueError):
    """The catalogue is too small or too uniform for a task of this family."""


def first(attempts: Iterator[Goal | None], *, family: str) -> Goal:
    """The first goal of an endless iterator, within a bound."""
    for _, goal in zip(range(500), attempts, strict=False):
        if goal is not None:
            return goal
    raise NothingToAsk(
        f"the catalogue offers no task of the family {family}: use more products (sites.products)"
    )


def distinct(goals: Iterator[ReachedGoal]) -> Iterator[ReachedGoal]:
    """Each goal once, at the ordinal that first reached it."""
    seen_keys: set[bytes] = set()
    for reached in goals:
        key = msgspec.json.encode(reached.goal, order="sorted")
        if key not in seen_keys:
            seen_keys.add(key)
            yield reached


_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[a-z0-9.]*[a-z0-9]")


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def mentions(text: str, phrase: str) -> bool:
    """Whether the words of a phrase occur together in a text."""
    text_words, phrase_words = _words(text), _words(phrase)
    return any(
        text_words[i : i + len(phrase_words)] == phrase_words
        for i in range(len(text_words) - len(phrase_words) + 1)
    )


def check_number(answer: str | None, expected: str) -> CheckResult:
    """The answer contains the expected number and no other: `$24.50`, `24.5` and `It costs 24.50` are equal."""
    if answer is None:
        return CheckResult(False, f"no answer was given, expected {expected}")
    answered_numbers = {Decimal(number) for number in _NUMBER.findall(answer[:200].replace(",", ""))}
    expected_number = Decimal(expected.lstrip("$"))
    return CheckResult(
        answered_numbers == {expected_number},
        f"expected the number {expected}, the answer is {answer[:80]!r}",
    )


def check_words(answer: str | None, expected: str, wrong_answers: Iterable[str]) -> CheckResult:
    """The answer mentions the expected words and none of the other possible answers."""
    if answer is None:
        return CheckResult(False, f"no answer was given, expected {expected}")
    right = mentions(answer, expected)
    wrong = [
        wrong_answer
        for wrong_answer in wrong_answers
        if wrong_answer != expected and mentions(answer, wrong_answer)
    ]
    return CheckResult(right and not wrong, f"expected {expected!r}, the answer is {answer[:80]!r}")


def is_unable(answer: str | None) -> bool:
    """Whether an answer says that the task cannot be done."""
    return answer is not None and answer.strip().strip(".").lower() == UNABLE.lower()


def at_the_end(ending: VisitEnd) -> int:
    """The ordinal of a goal that an answer reaches: one past the last fact."""
    return len(ending.journal) + 1
