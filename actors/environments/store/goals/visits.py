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


def visit(family: str, goal: Goal, start: StartPage) -> ShortestVisit:
    """The visit that a goal of this family, or a sketch of one, asks for.

    Raises:
        NotOffered: it names a product, an option, a line or an order that does not exist.
    """
    match family:
        case "find_price" | "find_rating" | "find_feature":
            product = _product(goal, start).id
            pages = Viewed(product=product), Viewed(product=product, part="features")
            return ShortestVisit(pages, goal["answer"])
        case "find_product":
            product_id = product_titled(start.catalogue, goal["answer"]).id
            return ShortestVisit((Listed(shown=(product_id,)),), goal["answer"])
        case "compare":
            product_ids = tuple(product_titled(start.catalogue, title).id for title in goal["titles"])
            return ShortestVisit((Listed(shown=product_ids),), goal["answer"])
        case "order_status":
            return ShortestVisit((OrderViewed(number=_order(goal, start).number),), goal["answer"])
        case "impossible":
            return ShortestVisit((_search_in_vain(goal, start),), UNABLE)
        case _:
            return ShortestVisit(_changes(family, goal, start), DONE.argument or "")


def _changes(family: str, goal: Goal, start: StartPage) -> tuple[AnyFact, ...]:
    """What a visitor changes for a goal that asks for no answer."""
    match family:
        case "add_to_cart":
            return (Added(line=_line(goal, start)),)
        case "add_several":
            return tuple(Added(line=_line(item, start)) for item in goal["items"])
        case "buy":
            return _bought(_line(goal, start), start)
        case "wish_list":
            return (Wished(product=_product(goal, start).id),)
        case "write_review":
            return (Reviewed(review=_review(goal, start)),)
        case "remove_from_cart":
            return (Removed(line=_line_in_cart(goal, start)),)
        case "change_quantity":
            line = _line_in_cart(goal, start)
            _require_quantity(goal["quantity"])
            return (Requantified(line=msgspec.structs.replace(line, quantity=goal["quantity"])),)
        case "cancel_order":
            order = _order(goal, start)
            if order.status != "processing":
                raise NotOffered(f"order {order.number} is {order.status}: too late to cancel")
            return (Cancelled(number=order.number),)
        case "change_address":
            if not goal["street"].strip() or not goal["city"].strip():
                raise NotOffered("an address has a street and a city")
            name = start.opening.address.name
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


def _product(goal: Goal, start: StartPage) -> Product:
    product = start.catalogue.get(goal["product"])
    if product is None:
        raise NotOffered(f"there is no product {goal['product']}")
    return product


def _require_quantity(quantity: int) -> None:
    if not 1 <= quantity <= MAX_QUANTITY:
        raise NotOffered(f"{quantity} pieces cannot be chosen: 1 to {MAX_QUANTITY}")


def _line(item: Goal, start: StartPage) -> CartLine:
    product = _product(item, start)
    for name, offered in (("colour", product.colours), ("size", product.sizes)):
        if item[name] not in (offered or ("",)):
            raise NotOffered(f"{product.title} has no {name} {item[name]!r}")
    _require_quantity(item["quantity"])
    return CartLine(product=product.id, colour=item["colour"], size=item["size"], quantity=item["quantity"])


def _bought(line: CartLine, start: StartPage) -> tuple[AnyFact, ...]:
    number = max((order.number for order in start.opening.orders), default=0) + 1
    order = Order(number=number, date="", status="processing", lines=(line,), address=start.opening.address)
    return Added(line=line), Ordered(order=order)


def _review(goal: Goal, start: StartPage) -> WrittenReview:
    if not 1 <= goal["stars"] <= MAX_STARS or not goal["text"].strip():
        raise NotOffered(f"a review has 1 to {MAX_STARS} stars and a text")
    return WrittenReview(product=_product(goal, start).id, stars=goal["stars"], text=goal["text"])


def _line_in_cart(goal: Goal, start: StartPage) -> CartLine:
    key = (goal["product"], goal["colour"], goal["size"])
    for line in start.opening.cart:
        if (line.product, line.colour, line.size) == key:
            return line
    raise NotOffered(f"the cart holds no {goal.get('title', goal['product'])}")


def _order(goal: Goal, start: StartPage) -> Order:
    for order in start.opening.orders:
        if order.number == goal["number"]:
            return order
    raise NotOffered(f"there is no order {goal['number']}")


def _search_in_vain(goal: Goal, start: StartPage) -> AnyFact:
    """Look at the place of the wanted thing, and find that it is not there."""
    match goal["kind"]:
        case "product":
            return Listed(query=goal["query"], exact=False)
        case "colour":
            return Viewed(product=_product(goal, start).id)
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
    start = StartPage(catalogue, opening_state(catalogue, task.family, task.seed))
    try:
        ending = ending_of(task.family, goal, start)
        finding = FAMILIES[task.family].check(goal, ending)
    except NotOffered as error:
        return str(error)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return f"the goal is not one of {task.family}: {type(error).__name__} {error}"
    if not finding.success:
        return f"the evaluator refuses the visit that does it: {finding.reason}"
    if goal.get("kind") == UNNAMED:
        exists = any(order.number == goal["number"] for order in start.opening.orders)
        return f"order {goal['number']} exists" if exists else ""
    if not any(reached == goal for reached in reached_by(task.family, ending)):
        return "the words of the goal are not true of what it asks for, or not of that alone"
    return ""


def ending_of(family: str, goal: Goal, start: StartPage) -> VisitEnd:
    """The end of the visit that a goal or a sketch asks for. Raises NotOffered."""
    journal, answer = visit(family, goal, start)
    return VisitEnd(start.catalogue, opening=start.opening, journal=journal, answer=answer)


def reached_by(family: str, ending: VisitEnd) -> Iterator[Goal]:
    """Every goal of the family that a visit reached."""
    for reached in FAMILIES[family].reached(ending):
        yield reached.goal


def goals_like(family: str, sketch: Goal, start: StartPage) -> list[Goal]:
    """Every goal of the family with the effect of a sketch, in any wording; empty when there is none."""
    try:
        ending = ending_of(family, sketch, start)
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
