"""Interface of a task family, and the data that judges and hindsight read."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from random import Random
from typing import Any, NamedTuple, TypeAlias

import msgspec

from hindcast.actors.environments.store.catalogue import Catalogue
from hindcast.actors.environments.store.families.view import PageView
from hindcast.actors.environments.store.session import AnyFact, Listed, VisitorState, apply
from hindcast.core.domain.action import Action

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

    def until(self, ordinal: int) -> "VisitEnd":
        """The visit after its first `ordinal` facts, without an answer."""
        return VisitEnd(self.catalogue, opening=self.opening, journal=self.journal[:ordinal], answer=None)

    def opened(self, part: str = "product") -> dict[int, None]:
        """Products whose page, or whose sub-page of this name, was opened, in order."""
        return {fact.product: None for _, fact in self.facts("viewed") if fact.part == part}

    def shown(self) -> dict[int, None]:
        """Products whose price and rating a page showed, in a list or alone, in order."""
        found: dict[int, None] = {}
        for _, fact in self.facts("listed", "viewed"):
            if isinstance(fact, Listed):
                found |= dict.fromkeys(fact.shown)
            elif fact.part == "product":
                found[fact.product] = None
        return found

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


def distinct(found: Iterator[ReachedGoal]) -> Iterator[ReachedGoal]:
    """Each goal once, at the ordinal that first reached it."""
    known: set[bytes] = set()
    for reached in found:
        key = msgspec.json.encode(reached.goal, order="sorted")
        if key not in known:
            known.add(key)
            yield reached
