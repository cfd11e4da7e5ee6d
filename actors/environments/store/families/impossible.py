"""The family of impossible tasks: an absent product, an absent color, an unknown order, an order too late to cancel.

The right ending is the answer `N/A` with nothing changed.
"""

from collections.abc import Iterator, Sequence
from random import Random

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, tokens_of
from hindcast.actors.environments.store.families.account import (
    order_phrases,
    say_cancel,
    say_status,
    to_order,
)
from hindcast.actors.environments.store.families.base import (
    UNABLE,
    CheckResult,
    Goal,
    PageView,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
    answer,
    at_the_end,
    click,
    first,
    is_unable,
)
from hindcast.actors.environments.store.families.cart import drawn_line, item_goal, say_add, say_buy
from hindcast.actors.environments.store.families.questions import say_price
from hindcast.actors.environments.store.families.targets import draw_target, reach, search_for, targets_of
from hindcast.actors.environments.store.session import CartLine, VisitorState
from hindcast.core.domain.action import Action


def absent(catalogue: Catalogue, words: Sequence[str]) -> Goal | None:
    """A product of known words that does not exist; None when the words do not describe one or it exists."""
    brand = next((name for name in vocabulary.BRANDS if name.lower() in words), "")
    materials = {name for kinds in vocabulary.CATEGORIES.values() for name in kinds}
    material = next((word for word in words if word in materials), "")
    noun = words[-1] if words else ""
    described = [word for word in (brand.lower(), material, noun) if word]
    if not (brand or material) or described != list(words) or not catalogue.matching(noun=noun):
        return None
    if catalogue.matching(noun=noun, brand=brand, material=material):
        return None
    query = " ".join(word for word in (brand, material, noun) if word)
    return {
        "kind": "product",
        "phrase": f"the {query}",
        "query": query,
        "colour": "",
        "size": "",
        "quantity": 1,
    }


def _draw_absent(catalogue: Catalogue, random: Random) -> Goal | None:
    product = random.choice(catalogue.products)
    brand = random.choice(vocabulary.BRANDS).lower()
    material = random.choice(vocabulary.CATEGORIES[product.category])
    words = random.choice(([brand, product.noun], [brand, material, product.noun], [material, product.noun]))
    return absent(catalogue, words)


def _draw_colour(catalogue: Catalogue, random: Random) -> Goal | None:
    target = draw_target(catalogue, random)
    line = drawn_line(target.product, random)
    absent_colours = [colour for colour in vocabulary.COLOURS if colour not in target.product.colours]
    if not target.product.colours or not absent_colours:
        return None
    absent_line = CartLine(product=line.product, colour=random.choice(absent_colours), size=line.size)
    return {"kind": "colour", **item_goal(target, absent_line)}


def _draw_order(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal | None:
    if random.random() < 0.5:
        number = random.randint(1000, 9999)
        if any(order.number == number for order in opening.orders):
            return None
        return {"kind": "order", "phrase": f"order {number}", "number": number}
    order = random.choice(opening.orders)
    if order.status in ("processing", "cancelled"):
        return None
    phrase = random.choice(order_phrases(catalogue, opening.orders, order))
    return {"kind": "too_late", "phrase": phrase, "number": order.number}


def _draw(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    kind = random.choice(("product", "product", "colour", "order"))

    def attempts() -> Iterator[Goal | None]:
        while True:
            if kind == "product":
                yield _draw_absent(catalogue, random)
            elif kind == "colour":
                yield _draw_colour(catalogue, random)
            else:
                yield _draw_order(catalogue, opening, random)

    return first(attempts(), family="impossible")


def _say(goal: Goal, random: Random) -> str:
    """Phrase the goal in the words of the family that would ask for it if it could be done."""
    match goal["kind"]:
        case "product":
            return random.choice((say_add, say_buy, say_price))(goal, random)
        case "colour":
            return random.choice((say_add, say_buy))(goal, random)
        case "order":
            return random.choice((say_status, say_cancel))(goal, random)
        case _:
            return say_cancel(goal, random)


def _check(goal: Goal, ending: VisitEnd) -> CheckResult:
    if not is_unable(ending.answer):
        return CheckResult(False, f"this cannot be done: expected the answer {UNABLE!r}")
    return CheckResult(ending.state == ending.opening, "this cannot be done, and nothing should have changed")


def _act(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    match goal["kind"]:
        case "product":
            return search_for(view, goal["query"]) or answer(UNABLE)
        case "colour":
            return reach(view, goal) or answer(UNABLE)
        case "order":
            return answer(UNABLE) if view.path == "/orders" else click(view.exactly("Orders"))
        case _:
            return to_order(view, goal["number"]) or answer(UNABLE)


def _reached(ending: VisitEnd) -> Iterator[ReachedGoal]:
    """Impossible goals that the visit looked into. Unknown order numbers are left out: the journal does not record requests
    for their pages.
    """
    if not is_unable(ending.answer) or ending.state != ending.opening:
        return
    end = at_the_end(ending)
    for _, fact in ending.facts("listed"):
        goal = absent(ending.catalogue, tokens_of(fact.query)) if fact.query and not fact.exact else None
        if goal is not None:
            yield ReachedGoal(goal, end)
    for product in map(ending.catalogue.__getitem__, ending.opened()):
        for colour in vocabulary.COLOURS if product.colours else ():
            if colour not in product.colours:
                for size in product.sizes or ("",):
                    for target in targets_of(ending.catalogue, product):
                        line = CartLine(product=product.id, colour=colour, size=size)
                        yield ReachedGoal({"kind": "colour", **item_goal(target, line)}, end)
    opened = {fact.number for _, fact in ending.facts("order_viewed")}
    for order in ending.opening.orders:
        if order.number in opened and order.status not in ("processing", "cancelled"):
            for phrase in order_phrases(ending.catalogue, ending.opening.orders, order):
                yield ReachedGoal({"kind": "too_late", "phrase": phrase, "number": order.number}, end)


FAMILIES = (
    StoreFamily(
        name="impossible", max_steps=9, draw=_draw, say=_say, check=_check, act=_act, reached=_reached
    ),
)
"""Families of this module, in a stable order."""
