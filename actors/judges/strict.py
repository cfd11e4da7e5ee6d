"""The judge `strict`: the task is done wholly, the agent ended it, and nothing else was changed.

It starts from the verdict of the rules: their failures and undecided episodes stay so. A success must also be
- whole: a page's partial credit is a failure;
- ended by the agent: a goal reached by chance, and left until the steps ran out, is a failure. A MiniWoB++ page ends the
  episode itself, so this does not apply there;
- ended at its goal: an agent that was to change something in the store stops there. It may see the page with which the
  shop answers the last change; opening another one is a failure, such as the checkout after a task to fill the cart;
- clean: any change in the store that the task did not ask for is a failure (an order, a wish, a review, an address). An
  undone change is no side effect, unless the store remembers it, as it does a cancelled order.

So its successes are a subset of the rules' successes. Version 1 did not check where an episode ended.
"""

from collections.abc import Callable, Mapping

import msgspec

from hindcast.actors.environments.store.control import VisitRecord
from hindcast.actors.environments.store.session import (
    AnyFact,
    Listed,
    OrderViewed,
    Viewed,
    Visited,
    VisitorState,
    apply,
)
from hindcast.actors.judges.rules import RuleJudge
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.events.catalogue.verdict import JudgeIdentity

STRICT = JudgeIdentity(name="strict", version="2")
"""Raise the version whenever it may give another verdict on the same evidence."""

FULL_REWARD = 1.0

CHANGES: Mapping[str, frozenset[str]] = {
    "find_price": frozenset(),
    "find_rating": frozenset(),
    "find_feature": frozenset(),
    "find_product": frozenset(),
    "compare": frozenset(),
    "add_to_cart": frozenset({"cart"}),
    "add_several": frozenset({"cart"}),
    "buy": frozenset({"orders"}),
    "remove_from_cart": frozenset({"cart"}),
    "change_quantity": frozenset({"cart"}),
    "wish_list": frozenset({"wishes"}),
    "write_review": frozenset({"reviews"}),
    "order_status": frozenset(),
    "cancel_order": frozenset({"orders"}),
    "change_address": frozenset({"address"}),
    "impossible": frozenset(),
}
"""Family of the store -> parts of a visitor's state that its goal changes; the rules check that they change correctly."""


class StrictJudge:
    """Judges by the rules and the objections of this module."""

    identity = STRICT

    def __init__(self, rules: RuleJudge | None = None) -> None:
        self._rules = rules or RuleJudge()

    def judge(self, task: Task, evidence: Evidence) -> Judgment:
        """Return success with reward 1, failure with the first objection, or undecided where the rules are.

        Raises:
            JudgeUnavailable: as the rule judge.
            KeyError: a family of the store that is missing from `CHANGES`.
        """
        judgment = self._rules.judge(task, evidence)
        if judgment.outcome != "success":
            return judgment
        object_to = OBJECTIONS.get(task.environment)
        objection = object_to(task, evidence, judgment) if object_to else ""
        if objection:
            return Judgment(
                outcome="failure", reward=0.0, reason=f"reached ({judgment.reason}), but {objection}"
            )
        return judgment


def _about_store(task: Task, evidence: Evidence, judgment: Judgment) -> str:
    if evidence.answer is None:
        return "the agent did not end the episode: its steps ran out"
    record = msgspec.convert(evidence.probes, VisitRecord)
    effects = side_effects(task.family, record.opening, record.state)
    if effects:
        return f"it changed what nobody asked for: {', '.join(effects)}"
    further = pages_after_change(record) if CHANGES[task.family] else ()
    return f"it went on after its goal, to {', '.join(further)}" if further else ""


def _about_miniwob(task: Task, evidence: Evidence, judgment: Judgment) -> str:
    if judgment.reward < FULL_REWARD:
        return f"the page gave only {judgment.reward:g} of {FULL_REWARD:g}"
    return ""


Objection = Callable[[Task, Evidence, Judgment], str]
OBJECTIONS: Mapping[str, Objection] = {"store": _about_store, "miniwob": _about_miniwob}
"""By environment: why a success is none after all; empty: no objection."""


def pages_after_change(record: VisitRecord) -> tuple[str, ...]:
    """Pages opened after the one that answered the last change, in words; empty where nothing was changed."""
    state, last = record.opening, None
    for place, fact in enumerate(record.journal):
        following = apply(state, fact)
        last, state = (place if following != state else last), following
    if last is None:
        return ()
    return tuple(_page(fact) for fact in record.journal[last + 2 :])


def _page(fact: AnyFact) -> str:
    match fact:
        case Visited(page=page):
            return f"the page {page}"
        case Listed(query=query, category=category):
            return f"a list of {query or category}"
        case Viewed(product=product):
            return f"product {product}"
        case OrderViewed(number=number):
            return f"order {number}"
        case _:
            return "something that the shop refused"


def side_effects(family: str, opening: VisitorState, state: VisitorState) -> list[str]:
    """What a visit changed in addition to what a goal of its family asks for, in words."""
    allowed = CHANGES[family]
    found = [
        f"the {part} of the visitor"
        for part in VisitorState.__struct_fields__
        if part not in allowed and getattr(state, part) != getattr(opening, part)
    ]
    if family == "buy":
        found += _beside_the_order(opening, state)
    return found


def _beside_the_order(opening: VisitorState, state: VisitorState) -> list[str]:
    """Buying adds one order; the rules check that one alone."""
    before = {order.number: order for order in opening.orders}
    found = [
        f"order {order.number}"
        for order in state.orders
        if order.number in before and order != before[order.number]
    ]
    found += [
        f"where order {order.number} goes"
        for order in state.orders
        if order.number not in before and order.address != opening.address
    ]
    return found
