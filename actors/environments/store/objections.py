"""Why a success at a task of the store does not count for the judge `strict`. Pure."""

from collections.abc import Mapping

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
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task

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


def objection(task: Task, evidence: Evidence) -> str:
    """Why the success does not count, in words; empty: it counts."""
    if evidence.answer is None:
        return "the agent did not end the episode: its steps ran out"
    record = msgspec.convert(evidence.probes, VisitRecord)
    effects = side_effects(task.family, record.opening, record.state)
    if effects:
        return f"it changed what nobody asked for: {', '.join(effects)}"
    further = pages_after_change(record) if CHANGES[task.family] else ()
    return f"it went on after its goal, to {', '.join(further)}" if further else ""


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
