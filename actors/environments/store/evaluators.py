"""The verdict on a visit to the store, and why the strict judge refuses a success. Both read evidence only, so that judging
again is a replay.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from hindcast.actors.environments.base import decided, undecided
from hindcast.actors.environments.store.catalogue import build_catalogue
from hindcast.actors.environments.store.families import FAMILIES, VisitEnd
from hindcast.actors.environments.store.families.base import distinct
from hindcast.actors.environments.store.session import (
    AnyFact,
    Listed,
    OrderViewed,
    Viewed,
    Visited,
    VisitorState,
    VisitRecord,
    apply,
)
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_seed
from hindcast.core.structs import convert


class StoreGoalAchieved(msgspec.Struct, frozen=True, kw_only=True):
    """A goal that a visit did reach, whatever its task was."""

    family: str
    goal: dict[str, Any]
    """As in a task of this family: `evaluate` accepts the visit."""
    instruction: str
    """An instruction that asks for the goal."""
    ordinal: int
    """Number of the fact (from 1) that first reached it. The step that reached it is the one whose observation has a smaller
    `world_ordinal` and whose successor's has not. One past the journal's end when the answer reached it, which is the last
    step.
    """


def _record_of(evidence: Evidence) -> VisitRecord | str:
    try:
        return convert(evidence.probes, VisitRecord)
    except msgspec.ValidationError as error:
        return f"the store's record is missing or damaged: {error}"


def ending_of(evidence: Evidence) -> VisitEnd | str:
    """The end of the visit; a string: why it is unknown."""
    record = _record_of(evidence)
    return record if isinstance(record, str) else _ending(record, evidence.answer)


def _ending(record: VisitRecord, answer: str | None) -> VisitEnd:
    return VisitEnd(
        build_catalogue(record.products, record.catalogue_seed),
        opening=record.opening,
        journal=record.journal,
        answer=answer,
    )


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """Reward 1 when the task's goal is reached at the end, else 0; undecided without a usable record."""
    record = _record_of(evidence)
    if isinstance(record, str):
        return undecided(record)
    family = FAMILIES.get(task.family)
    if family is None:
        return undecided(f"no evaluator for the family {task.family!r}")
    if record.catalogue != task.goal.get("catalogue"):
        task_catalogue = task.goal.get("catalogue")
        return undecided(f"the store showed catalogue {record.catalogue}, the task is about {task_catalogue}")
    finding = family.check(task.goal, _ending(record, evidence.answer))
    return decided(finding.success, finding.reason)


def achieved_goals(evidence: Evidence) -> tuple[StoreGoalAchieved, ...]:
    """Every goal of every family that the visit reached, each once, by ordinal. Empty without a usable record."""
    record = _record_of(evidence)
    if isinstance(record, str):
        return ()
    ending = _ending(record, evidence.answer)
    goals: list[StoreGoalAchieved] = []
    for family in FAMILIES.values():
        for index, reached in enumerate(distinct(family.reached(ending))):
            random = Random(derive_seed(record.seed, "store", "hindsight", family.name, index))
            goals.append(
                StoreGoalAchieved(
                    family=family.name,
                    goal={**reached.goal, "catalogue": record.catalogue},
                    instruction=family.say(reached.goal, random),
                    ordinal=reached.ordinal,
                )
            )
    return tuple(sorted(goals, key=lambda achieved: achieved.ordinal))


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
    record = convert(evidence.probes, VisitRecord)
    effects = side_effects(task.family, record.opening, record.state)
    if effects:
        return f"it changed what nobody asked for: {', '.join(effects)}"
    further = pages_after_change(record) if CHANGES[task.family] else ()
    return f"it went on after its goal, to {', '.join(further)}" if further else ""


def pages_after_change(record: VisitRecord) -> tuple[str, ...]:
    """Pages opened after the one that answered the last change, in words; empty where nothing was changed."""
    state, last_change = record.opening, None
    for index, fact in enumerate(record.journal):
        following = apply(state, fact)
        last_change, state = (index if following != state else last_change), following
    if last_change is None:
        return ()
    return tuple(_page(fact) for fact in record.journal[last_change + 2 :])


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
    changes = [
        f"the {field} of the visitor"
        for field in VisitorState.__struct_fields__
        if field not in allowed and getattr(state, field) != getattr(opening, field)
    ]
    if family == "buy":
        changes += _changes_of_other_orders(opening, state)
    return changes


def _changes_of_other_orders(opening: VisitorState, state: VisitorState) -> list[str]:
    """Buying adds one order; the rules check that one alone."""
    orders_at_start = {order.number: order for order in opening.orders}
    changes = [
        f"order {order.number}"
        for order in state.orders
        if order.number in orders_at_start and order != orders_at_start[order.number]
    ]
    changes += [
        f"where order {order.number} goes"
        for order in state.orders
        if order.number not in orders_at_start and order.address != opening.address
    ]
    return changes
