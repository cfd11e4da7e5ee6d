"""The shortest visit that does what a goal asks, built from facts: no server, no browser.

For a goal, the visit proves that the goal can be reached; the curriculum's feasibility filter asks this. For a sketch,
which is a goal without its phrase, it leads to every goal with the same effect (`variations`). This module enforces the
rules that the shop's pages enforce by what they offer.

A goal can be reached under three conditions: a visit that does what it asks exists, the family's evaluator accepts that
visit, and hindsight finds that the visit reached this very goal. The last one fails for a false answer, or for a phrase
that fits another product or several.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.actors.environments.store.families import FAMILIES, VisitEnd
from hindcast.actors.environments.store.families.base import DONE, UNABLE, Goal
from hindcast.actors.environments.store.session import (
    MAX_QUANTITY,
    Added,
    Address,
    AnyFact,
    Cancelled,
    CartLine,
    Listed,
    Moved,
    Order,
    Ordered,
    OrderViewed,
    Removed,
    Requantified,
    Reviewed,
    Viewed,
    VisitorState,
    Wished,
    WrittenReview,
    opening_state,
)
from hindcast.core.domain.task import Task

MAX_STARS = 5


class NotOffered(ValueError):
    """The shop lacks something that a goal names; the text says what."""


class ShortestVisit(NamedTuple):
    """What a visitor did and answered."""

    journal: tuple[AnyFact, ...]
    answer: str


class StartPage(NamedTuple):
    """The catalogue and state with which a visit begins."""

    catalogue: Catalogue
    opening: VisitorState


def visit(family: str, goal: Goal, place: StartPage) -> ShortestVisit:
    """The visit that a goal of this family, or a sketch of one, asks for.

    Raises:
        NotOffered: it names a product, an option, a line or an order that does not exist.
    """
    match family:
        case "find_price" | "find_rating" | "find_feature":
            product = _product(goal, place).id
            seen = Viewed(product=product), Viewed(product=product, part="features")
            return ShortestVisit(seen, goal["answer"])
        case "find_product":
            found = product_titled(place.catalogue, goal["answer"]).id
            return ShortestVisit((Listed(shown=(found,)),), goal["answer"])
        case "compare":
            shown = tuple(product_titled(place.catalogue, title).id for title in goal["titles"])
            return ShortestVisit((Listed(shown=shown),), goal["answer"])
        case "order_status":
            return ShortestVisit((OrderViewed(number=_order(goal, place).number),), goal["answer"])
        case "impossible":
            return ShortestVisit((_search_in_vain(goal, place),), UNABLE)
        case _:
            return ShortestVisit(_changes(family, goal, place), DONE.argument or "")


def _changes(family: str, goal: Goal, place: StartPage) -> tuple[AnyFact, ...]:
    """What a visitor changes for a goal that asks for no answer."""
    match family:
        case "add_to_cart":
            return (Added(line=_line(goal, place)),)
        case "add_several":
            return tuple(Added(line=_line(item, place)) for item in goal["items"])
        case "buy":
            return _bought(_line(goal, place), place)
        case "wish_list":
            return (Wished(product=_product(goal, place).id),)
        case "write_review":
            return (Reviewed(review=_review(goal, place)),)
        case "remove_from_cart":
            return (Removed(line=_held(goal, place)),)
        case "change_quantity":
            line = _held(goal, place)
            _require_quantity(goal["quantity"])
            return (Requantified(line=msgspec.structs.replace(line, quantity=goal["quantity"])),)
        case "cancel_order":
            order = _order(goal, place)
            if order.status != "processing":
                raise NotOffered(f"order {order.number} is {order.status}: too late to cancel")
            return (Cancelled(number=order.number),)
        case "change_address":
            if not goal["street"].strip() or not goal["city"].strip():
                raise NotOffered("an address has a street and a city")
            name = place.opening.address.name
            return (Moved(address=Address(name=name, street=goal["street"], city=goal["city"])),)
        case _:
            raise KeyError(family)


def product_titled(catalogue: Catalogue, title: str) -> Product:
    """The product of a title. Raises NotOffered."""
    noun = title.split()[-1] if title else ""
    for product in catalogue.matching(noun=noun):
        if product.title == title:
            return product
    raise NotOffered(f"no product is called {title!r}")


def _product(goal: Goal, place: StartPage) -> Product:
    product = place.catalogue.get(goal["product"])
    if product is None:
        raise NotOffered(f"there is no product {goal['product']}")
    return product


def _require_quantity(quantity: int) -> None:
    if not 1 <= quantity <= MAX_QUANTITY:
        raise NotOffered(f"{quantity} pieces cannot be chosen: 1 to {MAX_QUANTITY}")


def _line(item: Goal, place: StartPage) -> CartLine:
    product = _product(item, place)
    for name, offered in (("colour", product.colours), ("size", product.sizes)):
        if item[name] not in (offered or ("",)):
            raise NotOffered(f"{product.title} has no {name} {item[name]!r}")
    _require_quantity(item["quantity"])
    return CartLine(product=product.id, colour=item["colour"], size=item["size"], quantity=item["quantity"])


def _bought(line: CartLine, place: StartPage) -> tuple[AnyFact, ...]:
    number = max((order.number for order in place.opening.orders), default=0) + 1
    order = Order(number=number, date="", status="processing", lines=(line,), address=place.opening.address)
    return Added(line=line), Ordered(order=order)


def _review(goal: Goal, place: StartPage) -> WrittenReview:
    if not 1 <= goal["stars"] <= MAX_STARS or not goal["text"].strip():
        raise NotOffered(f"a review has 1 to {MAX_STARS} stars and a text")
    return WrittenReview(product=_product(goal, place).id, stars=goal["stars"], text=goal["text"])


def _held(goal: Goal, place: StartPage) -> CartLine:
    wanted = (goal["product"], goal["colour"], goal["size"])
    for line in place.opening.cart:
        if (line.product, line.colour, line.size) == wanted:
            return line
    raise NotOffered(f"the cart holds no {goal.get('title', goal['product'])}")


def _order(goal: Goal, place: StartPage) -> Order:
    for order in place.opening.orders:
        if order.number == goal["number"]:
            return order
    raise NotOffered(f"there is no order {goal['number']}")


def _search_in_vain(goal: Goal, place: StartPage) -> AnyFact:
    """Look at the place of the wanted thing, and find that it is not there."""
    match goal["kind"]:
        case "product":
            return Listed(query=goal["query"], exact=False)
        case "colour":
            return Viewed(product=_product(goal, place).id)
        case _:
            return OrderViewed(number=goal["number"])


UNNAMED = "order"
"""Kind of impossible goal that hindsight never finds: an unknown order number has no page to look at."""


def why_unreachable(catalogue: Catalogue, task: Task) -> str:
    """Why the task's goal cannot be reached; empty: it can."""
    if task.family not in FAMILIES:
        return f"the store has no family {task.family!r}"
    goal = {name: value for name, value in task.goal.items() if name != "catalogue"}
    if task.goal.get("catalogue") != catalogue.name:
        return f"the goal is about catalogue {task.goal.get('catalogue')}, the store shows {catalogue.name}"
    place = StartPage(catalogue, opening_state(catalogue, task.family, task.seed))
    try:
        ending = ending_of(task.family, goal, place)
        finding = FAMILIES[task.family].check(goal, ending)
    except NotOffered as error:
        return str(error)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return f"the goal is not one of {task.family}: {type(error).__name__} {error}"
    if not finding.success:
        return f"the evaluator refuses the visit that does it: {finding.reason}"
    if goal.get("kind") == UNNAMED:
        known = any(order.number == goal["number"] for order in place.opening.orders)
        return f"order {goal['number']} exists" if known else ""
    if not any(reached == goal for reached in reached_by(task.family, ending)):
        return "the words of the goal are not true of what it asks for, or not of that alone"
    return ""


def ending_of(family: str, goal: Goal, place: StartPage) -> VisitEnd:
    """The end of the visit that a goal or a sketch asks for. Raises NotOffered."""
    journal, answer = visit(family, goal, place)
    return VisitEnd(place.catalogue, opening=place.opening, journal=journal, answer=answer)


def reached_by(family: str, ending: VisitEnd) -> Iterator[Goal]:
    """Every goal of the family that a visit reached."""
    for reached in FAMILIES[family].reached(ending):
        yield reached.goal


def goals_like(family: str, sketch: Goal, place: StartPage) -> list[Goal]:
    """Every goal of the family with the effect of a sketch, in any wording; empty when there is none."""
    try:
        ending = ending_of(family, sketch, place)
    except NotOffered:
        return []
    return [goal for goal in reached_by(family, ending) if holds(goal, sketch)]


def holds(goal: Any, sketch: Any) -> bool:
    """Whether a goal contains everything that a sketch contains."""
    if isinstance(sketch, Mapping):
        return isinstance(goal, Mapping) and all(
            name in goal and holds(goal[name], value) for name, value in sketch.items()
        )
    if isinstance(sketch, list):
        return (
            isinstance(goal, list)
            and len(goal) == len(sketch)
            and all(holds(*pair) for pair in zip(goal, sketch, strict=True))
        )
    return bool(goal == sketch)
