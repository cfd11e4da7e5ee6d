"""Families that change the content of the cart: remove_from_cart, change_quantity."""

from collections.abc import Iterator, Sequence
from random import Random

import msgspec

from hindcast.actors.environments.store.catalogue import Catalogue
from hindcast.actors.environments.store.families.base import (
    CheckResult,
    Goal,
    NothingToAsk,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
)
from hindcast.actors.environments.store.families.view import DONE, PageView, click, fill
from hindcast.actors.environments.store.initial_state import MAX_QUANTITY
from hindcast.actors.environments.store.session import CartLine, VisitorState
from hindcast.core.domain.action import Action


def phrases_of(catalogue: Catalogue, cart: Sequence[CartLine], line: CartLine) -> tuple[str, ...]:
    """Every phrase that is true of this line's product alone in the cart, its title first."""
    product = catalogue[line.product]
    phrases = [f"the {product.title}"]
    held = [catalogue[other.product] for other in cart]
    if sum(other.noun == product.noun for other in held) == 1:
        phrases.append(f"the {product.noun}")
    if sum((other.brand, other.noun) == (product.brand, product.noun) for other in held) == 1:
        phrases.append(f"the {product.brand} {product.noun}")
    if sum((other.material, other.noun) == (product.material, product.noun) for other in held) == 1:
        phrases.append(f"the {product.material} {product.noun}")
    return tuple(phrases)


def line_goal(catalogue: Catalogue, line: CartLine, phrase: str) -> Goal:
    """A goal about a line of the cart, named in these words."""
    return {
        "product": line.product,
        "colour": line.colour,
        "size": line.size,
        "title": catalogue[line.product].title,
        "phrase": phrase,
    }


def _draw_line(catalogue: Catalogue, opening: VisitorState, random: Random) -> tuple[CartLine, Goal]:
    if not opening.cart:
        raise NothingToAsk("the visitor arrives with an empty cart: there is nothing to tidy")
    line = random.choice(opening.cart)
    return line, line_goal(catalogue, line, random.choice(phrases_of(catalogue, opening.cart, line)))


def _draw_remove(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    return _draw_line(catalogue, opening, random)[1]


def _say_remove(goal: Goal, random: Random) -> str:
    return random.choice(
        (
            "Remove {} from my cart.",
            "Take {} out of the cart.",
            "I no longer want {}. Remove it from the cart.",
            "Delete {} from the shopping cart.",
        )
    ).format(goal["phrase"])


def _is_line(goal: Goal, line: CartLine) -> bool:
    return (line.product, line.colour, line.size) == (goal["product"], goal["colour"], goal["size"])


def _check_remove(goal: Goal, ending: VisitEnd) -> CheckResult:
    wanted = tuple(line for line in ending.opening.cart if not _is_line(goal, line))
    return CheckResult(ending.state.cart == wanted, f"the cart should have lost only {goal['title']}")


def _act_remove(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if view.path != "/cart":
        return click(view.press("Cart"))
    line = view.exactly(goal["title"])
    return DONE if line is None else click(view.press("Remove", after=line))


def _reached_remove(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for ordinal, _ in ending.facts("added", "removed", "requantified"):
        cart = ending.states[ordinal].cart
        gone = [line for line in ending.opening.cart if line not in cart]
        if len(gone) == 1 and cart == tuple(line for line in ending.opening.cart if line is not gone[0]):
            for phrase in phrases_of(ending.catalogue, ending.opening.cart, gone[0]):
                yield ReachedGoal(line_goal(ending.catalogue, gone[0], phrase), ordinal)


def _draw_quantity(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    line, goal = _draw_line(catalogue, opening, random)
    other = [count for count in range(1, MAX_QUANTITY + 1) if count != line.quantity]
    return {**goal, "quantity": random.choice(other)}


def _say_quantity(goal: Goal, random: Random) -> str:
    return random.choice(
        (
            "Change the quantity of {phrase} in my cart to {quantity}.",
            "Set the quantity of {phrase} in the cart to {quantity}.",
            "I want {quantity} pieces of {phrase}. Update my cart.",
        )
    ).format(phrase=goal["phrase"], quantity=goal["quantity"])


def _check_quantity(goal: Goal, ending: VisitEnd) -> CheckResult:
    wanted = tuple(
        msgspec.structs.replace(line, quantity=goal["quantity"]) if _is_line(goal, line) else line
        for line in ending.opening.cart
    )
    return CheckResult(
        ending.state.cart == wanted,
        f"only the quantity of {goal['title']} should have changed, to {goal['quantity']}",
    )


def _act_quantity(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if view.path != "/cart":
        return click(view.press("Cart"))
    line = view.exactly(goal["title"])
    quantity = None if line is None else view.field("Quantity", after=line)
    if quantity is None or quantity.value != str(goal["quantity"]):
        return fill(quantity, str(goal["quantity"]), name="Select Dropdown Option")
    # The page is the same before and after the update: the earlier actions distinguish them.
    if earlier and earlier[-1].name == "Click" and len(earlier) > 2:
        return DONE
    return click(view.press("Update", after=quantity))


def _reached_quantity(ending: VisitEnd) -> Iterator[ReachedGoal]:
    before = ending.opening.cart
    for ordinal, _ in ending.facts("added", "removed", "requantified"):
        cart = ending.states[ordinal].cart
        if len(cart) != len(before):
            continue
        changed = [(was, now) for was, now in zip(before, cart, strict=True) if was != now]
        if len(changed) == 1 and changed[0][0].same_item(changed[0][1]):
            was, now = changed[0]
            for phrase in phrases_of(ending.catalogue, before, was):
                yield ReachedGoal(
                    {**line_goal(ending.catalogue, was, phrase), "quantity": now.quantity}, ordinal
                )


REMOVE_FROM_CART = StoreFamily(
    name="remove_from_cart",
    max_steps=6,
    draw=_draw_remove,
    say=_say_remove,
    check=_check_remove,
    act=_act_remove,
    reached=_reached_remove,
)
CHANGE_QUANTITY = StoreFamily(
    name="change_quantity",
    max_steps=8,
    draw=_draw_quantity,
    say=_say_quantity,
    check=_check_quantity,
    act=_act_quantity,
    reached=_reached_quantity,
)
