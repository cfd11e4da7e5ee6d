"""Families that fill the cart or order its content: add_to_cart, add_several, buy."""

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import msgspec

from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.actors.environments.store.families.base import (
    CheckResult,
    Goal,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
    first,
)
from hindcast.actors.environments.store.families.targets import ProductTarget, draw_target, reach, targets_of
from hindcast.actors.environments.store.families.view import DONE, PageView, click, fill
from hindcast.actors.environments.store.session import CartLine, VisitorState
from hindcast.core.domain.action import Action

COUNTS = {1: "", 2: "two pieces of ", 3: "three pieces of "}
"""A quantity in an instruction."""


def _line_of(goal: Goal) -> CartLine:
    return CartLine(
        product=goal["product"], colour=goal["colour"], size=goal["size"], quantity=goal["quantity"]
    )


def item_goal(target: ProductTarget, line: CartLine) -> Goal:
    """A goal that asks for this line and names its product in the target's words."""
    return {**target.goal(), "colour": line.colour, "size": line.size, "quantity": line.quantity}


def drawn_line(product: Product, random: Random) -> CartLine:
    """A line of a product with random options, mostly one piece."""
    return CartLine(
        product=product.id,
        colour=random.choice(product.colours) if product.colours else "",
        size=random.choice(product.sizes) if product.sizes else "",
        quantity=random.choice((1, 1, 1, 1, 2, 3)),
    )


def item_text(goal: Goal) -> str:
    """An item in words: `two pieces of the cheapest oak lamp in red and size large`."""
    options = [goal["colour"]] if goal["colour"] else []
    if goal["size"]:
        options.append(f"size {goal['size']}")
    count = COUNTS.get(goal["quantity"], f"{goal['quantity']} pieces of ")
    return f"{count}{goal['phrase']}{' in ' if options else ''}{' and '.join(options)}"


def _draw_item(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    target = draw_target(catalogue, random)
    return item_goal(target, drawn_line(target.product, random))


def say_add(goal: Goal, random: Random) -> str:
    """An instruction that asks for something in the cart."""
    return random.choice(
        (
            "Add {} to my cart.",
            "Put {} into the cart.",
            "I want {} in my cart, but do not order yet.",
            "Place {} in the shopping cart.",
        )
    ).format(item_text(goal))


def say_buy(goal: Goal, random: Random) -> str:
    """An instruction that asks for an order."""
    return random.choice(("Buy {}.", "Order {}.", "I need {}. Please buy it.", "Purchase {} for me.")).format(
        item_text(goal)
    )


def choose_and_add(goal: Goal, view: PageView) -> Action:
    """On a product's page: choose options and quantity, then add it to the cart."""
    if view.path != f"/product/{goal['product']}":
        return click(view.exactly("Back to product"))
    if goal["colour"]:
        colour = view.field("Colour")
        if colour is None or colour.value != goal["colour"]:
            return fill(colour, goal["colour"], name="Select Dropdown Option")
    if goal["size"]:
        size = view.radio(goal["size"])
        if size is None or not size.checked:
            return click(size)
    if goal["quantity"] != 1:
        quantity = view.field("Quantity")
        if quantity is None or quantity.value != str(goal["quantity"]):
            return fill(quantity, str(goal["quantity"]), name="Select Dropdown Option")
    return click(view.exactly("Add to cart"))


def _act_add(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if view.path == "/cart" and view.exactly(goal["title"]) is not None:
        return DONE
    return reach(view, goal) or choose_and_add(goal, view)


def _act_buy(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if view.path == "/cart" and view.exactly(goal["title"]) is not None:
        return click(view.exactly("Check out"))
    if view.path == "/checkout":
        return click(view.exactly("Place order"))
    if view.path.startswith("/orders/"):
        return DONE
    return reach(view, goal) or choose_and_add(goal, view)


def _check_add(goal: Goal, ending: VisitEnd) -> CheckResult:
    wanted = (*ending.opening.cart, _line_of(goal))
    return CheckResult(ending.state.cart == wanted, f"the cart should hold exactly {item_text(goal)}")


def _check_buy(goal: Goal, ending: VisitEnd) -> CheckResult:
    before = {order.number for order in ending.opening.orders}
    placed = [order for order in ending.state.orders if order.number not in before]
    right = len(placed) == 1 and placed[0].lines == (_line_of(goal),) and placed[0].status == "processing"
    return CheckResult(right, f"exactly one order should have been placed, of {item_text(goal)}")


def _reached_add(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for ordinal, _ in ending.facts("added", "removed", "requantified"):
        cart = ending.states[ordinal].cart
        if len(cart) == len(ending.opening.cart) + 1 and cart[:-1] == ending.opening.cart:
            for target in targets_of(ending.catalogue, ending.catalogue[cart[-1].product]):
                yield ReachedGoal(item_goal(target, cart[-1]), ordinal)


def _reached_buy(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for ordinal, fact in ending.facts("ordered"):
        if len(fact.order.lines) == 1:
            line = fact.order.lines[0]
            for target in targets_of(ending.catalogue, ending.catalogue[line.product]):
                reached = ReachedGoal(item_goal(target, line), ordinal)
                if _check_buy(reached.goal, ending.until(ordinal)).success:
                    yield reached


def _draw_several(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    """Two products of different nouns, at most one of them with options to choose."""

    def attempts() -> Iterator[Goal | None]:
        while True:
            one = draw_target(catalogue, random)
            other = draw_target(catalogue, random, superlatives=False)
            free = sum(not (t.product.colours or t.product.sizes) for t in (one, other))
            if one.product.noun == other.product.noun or not free:
                yield None
                continue
            lines = [msgspec.structs.replace(drawn_line(t.product, random), quantity=1) for t in (one, other)]
            yield {"items": [item_goal(t, line) for t, line in zip((one, other), lines, strict=True)]}

    return first(attempts(), family="add_several")


def _say_several(goal: Goal, random: Random) -> str:
    one, other = (item_text(item) for item in goal["items"])
    return random.choice(
        (
            "Add {} and {} to my cart.",
            "Put {} into the cart, and then {}.",
            "I want both {} and {} in my cart.",
        )
    ).format(one, other)


def _act_several(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    items = goal["items"]
    if view.cart_count >= len(items):
        return DONE
    item = items[view.cart_count]
    return reach(view, item) or choose_and_add(item, view)


def _in_any_order(lines: Sequence[CartLine]) -> list[CartLine]:
    return sorted(lines, key=lambda line: (line.product, line.colour, line.size))


def _check_several(goal: Goal, ending: VisitEnd) -> CheckResult:
    wanted = [*ending.opening.cart, *(_line_of(item) for item in goal["items"])]
    right = _in_any_order(ending.state.cart) == _in_any_order(wanted)
    return CheckResult(
        right, f"the cart should hold exactly {' and '.join(item_text(item) for item in goal['items'])}"
    )


def _reached_several(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for ordinal, _ in ending.facts("added", "removed", "requantified"):
        cart = ending.states[ordinal].cart
        fresh = cart[len(ending.opening.cart) :]
        if len(fresh) == 2 and cart[:-2] == ending.opening.cart:
            one, other = (ending.catalogue[line.product] for line in fresh)
            plain = [t for t in targets_of(ending.catalogue, other) if t.sort == "relevance"]
            for target, second in product(targets_of(ending.catalogue, one), plain):
                yield ReachedGoal(
                    {"items": [item_goal(target, fresh[0]), item_goal(second, fresh[1])]}, ordinal
                )


ADD_TO_CART = StoreFamily(
    name="add_to_cart",
    max_steps=12,
    draw=_draw_item,
    say=say_add,
    check=_check_add,
    act=_act_add,
    reached=_reached_add,
)
ADD_SEVERAL = StoreFamily(
    name="add_several",
    max_steps=16,
    draw=_draw_several,
    say=_say_several,
    check=_check_several,
    act=_act_several,
    reached=_reached_several,
)
BUY = StoreFamily(
    name="buy",
    max_steps=15,
    draw=_draw_item,
    say=say_buy,
    check=_check_buy,
    act=_act_buy,
    reached=_reached_buy,
)
