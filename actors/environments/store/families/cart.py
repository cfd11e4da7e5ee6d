"""Families about the cart: add_to_cart, add_several, buy, remove_from_cart, change_quantity."""

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import msgspec

from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.actors.environments.store.families.base import (
    DONE,
    CheckResult,
    Goal,
    NothingToAsk,
    PageView,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
    click,
    fill,
    first,
    phrased,
)
from hindcast.actors.environments.store.families.targets import ProductTarget, draw_target, reach, targets_of
from hindcast.actors.environments.store.session import MAX_QUANTITY, CartLine, VisitorState
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


say_add = phrased(
    "Add {item} to my cart.",
    "Put {item} into the cart.",
    "I want {item} in my cart, but do not order yet.",
    "Place {item} in the shopping cart.",
    words=lambda goal: {"item": item_text(goal)},
)
"""An instruction that asks for something in the cart."""


say_buy = phrased(
    "Buy {item}.",
    "Order {item}.",
    "I need {item}. Please buy it.",
    "Purchase {item} for me.",
    words=lambda goal: {"item": item_text(goal)},
)
"""An instruction that asks for an order."""


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
    expected_cart = (*ending.opening.cart, _line_of(goal))
    return CheckResult(ending.state.cart == expected_cart, f"the cart should hold exactly {item_text(goal)}")


def _check_buy(goal: Goal, ending: VisitEnd) -> CheckResult:
    numbers_at_start = {order.number for order in ending.opening.orders}
    placed = [order for order in ending.state.orders if order.number not in numbers_at_start]
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
                if _check_buy(reached.goal, ending.first_facts(ordinal)).success:
                    yield reached


def _draw_several(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    """Two products of different nouns, at most one of them with options to choose."""

    def attempts() -> Iterator[Goal | None]:
        while True:
            first_target = draw_target(catalogue, random)
            second_target = draw_target(catalogue, random, superlatives=False)
            free = sum(not (t.product.colours or t.product.sizes) for t in (first_target, second_target))
            if first_target.product.noun == second_target.product.noun or not free:
                yield None
                continue
            lines = [
                msgspec.structs.replace(drawn_line(t.product, random), quantity=1)
                for t in (first_target, second_target)
            ]
            yield {
                "items": [
                    item_goal(t, line) for t, line in zip((first_target, second_target), lines, strict=True)
                ]
            }

    return first(attempts(), family="add_several")


def _say_several(goal: Goal, random: Random) -> str:
    first_item, second_item = (item_text(item) for item in goal["items"])
    return random.choice(
        (
            "Add {} and {} to my cart.",
            "Put {} into the cart, and then {}.",
            "I want both {} and {} in my cart.",
        )
    ).format(first_item, second_item)


def _act_several(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    items = goal["items"]
    if view.cart_count >= len(items):
        return DONE
    item = items[view.cart_count]
    return reach(view, item) or choose_and_add(item, view)


def _in_any_order(lines: Sequence[CartLine]) -> list[CartLine]:
    return sorted(lines, key=lambda line: (line.product, line.colour, line.size))


def _check_several(goal: Goal, ending: VisitEnd) -> CheckResult:
    expected_lines = [*ending.opening.cart, *(_line_of(item) for item in goal["items"])]
    right = _in_any_order(ending.state.cart) == _in_any_order(expected_lines)
    return CheckResult(
        right, f"the cart should hold exactly {' and '.join(item_text(item) for item in goal['items'])}"
    )


def _reached_several(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for ordinal, _ in ending.facts("added", "removed", "requantified"):
        cart = ending.states[ordinal].cart
        fresh = cart[len(ending.opening.cart) :]
        if len(fresh) == 2 and cart[:-2] == ending.opening.cart:
            first_product, second_product = (ending.catalogue[line.product] for line in fresh)
            found_by_relevance = [
                t for t in targets_of(ending.catalogue, second_product) if t.sort == "relevance"
            ]
            for target, second in product(targets_of(ending.catalogue, first_product), found_by_relevance):
                yield ReachedGoal(
                    {"items": [item_goal(target, fresh[0]), item_goal(second, fresh[1])]}, ordinal
                )


def line_phrases(catalogue: Catalogue, cart: Sequence[CartLine], line: CartLine) -> tuple[str, ...]:
    """Every phrase that is true of this line's product alone in the cart, its title first."""
    product = catalogue[line.product]
    phrases = [f"the {product.title}"]
    products = [catalogue[item.product] for item in cart]
    if sum(item.noun == product.noun for item in products) == 1:
        phrases.append(f"the {product.noun}")
    if sum((item.brand, item.noun) == (product.brand, product.noun) for item in products) == 1:
        phrases.append(f"the {product.brand} {product.noun}")
    if sum((item.material, item.noun) == (product.material, product.noun) for item in products) == 1:
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
    return line, line_goal(catalogue, line, random.choice(line_phrases(catalogue, opening.cart, line)))


def _draw_remove(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    return _draw_line(catalogue, opening, random)[1]


_say_remove = phrased(
    "Remove {phrase} from my cart.",
    "Take {phrase} out of the cart.",
    "I no longer want {phrase}. Remove it from the cart.",
    "Delete {phrase} from the shopping cart.",
)


def _is_line(goal: Goal, line: CartLine) -> bool:
    return (line.product, line.colour, line.size) == (goal["product"], goal["colour"], goal["size"])


def _check_remove(goal: Goal, ending: VisitEnd) -> CheckResult:
    expected_cart = tuple(line for line in ending.opening.cart if not _is_line(goal, line))
    return CheckResult(ending.state.cart == expected_cart, f"the cart should have lost only {goal['title']}")


def _act_remove(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if view.path != "/cart":
        return click(view.press("Cart"))
    line = view.exactly(goal["title"])
    return DONE if line is None else click(view.press("Remove", after=line))


def _reached_remove(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for ordinal, _ in ending.facts("added", "removed", "requantified"):
        cart = ending.states[ordinal].cart
        removed = [line for line in ending.opening.cart if line not in cart]
        if len(removed) == 1 and cart == tuple(
            line for line in ending.opening.cart if line is not removed[0]
        ):
            for phrase in line_phrases(ending.catalogue, ending.opening.cart, removed[0]):
                yield ReachedGoal(line_goal(ending.catalogue, removed[0], phrase), ordinal)


def _draw_quantity(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    line, goal = _draw_line(catalogue, opening, random)
    other_quantities = [count for count in range(1, MAX_QUANTITY + 1) if count != line.quantity]
    return {**goal, "quantity": random.choice(other_quantities)}


_say_quantity = phrased(
    "Change the quantity of {phrase} in my cart to {quantity}.",
    "Set the quantity of {phrase} in the cart to {quantity}.",
    "I want {quantity} pieces of {phrase}. Update my cart.",
)


def _check_quantity(goal: Goal, ending: VisitEnd) -> CheckResult:
    expected_cart = tuple(
        msgspec.structs.replace(line, quantity=goal["quantity"]) if _is_line(goal, line) else line
        for line in ending.opening.cart
    )
    return CheckResult(
        ending.state.cart == expected_cart,
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
    cart_at_start = ending.opening.cart
    for ordinal, _ in ending.facts("added", "removed", "requantified"):
        cart = ending.states[ordinal].cart
        if len(cart) != len(cart_at_start):
            continue
        changed = [
            (old_line, new_line)
            for old_line, new_line in zip(cart_at_start, cart, strict=True)
            if old_line != new_line
        ]
        if len(changed) == 1 and changed[0][0].same_item(changed[0][1]):
            old_line, new_line = changed[0]
            for phrase in line_phrases(ending.catalogue, cart_at_start, old_line):
                yield ReachedGoal(
                    {**line_goal(ending.catalogue, old_line, phrase), "quantity": new_line.quantity}, ordinal
                )


FAMILIES = (
    StoreFamily(
        name="add_to_cart",
        max_steps=12,
        draw=_draw_item,
        say=say_add,
        check=_check_add,
        act=_act_add,
        reached=_reached_add,
    ),
    StoreFamily(
        name="add_several",
        max_steps=16,
        draw=_draw_several,
        say=_say_several,
        check=_check_several,
        act=_act_several,
        reached=_reached_several,
    ),
    StoreFamily(
        name="buy",
        max_steps=15,
        draw=_draw_item,
        say=say_buy,
        check=_check_buy,
        act=_act_buy,
        reached=_reached_buy,
    ),
    StoreFamily(
        name="remove_from_cart",
        max_steps=6,
        draw=_draw_remove,
        say=_say_remove,
        check=_check_remove,
        act=_act_remove,
        reached=_reached_remove,
    ),
    StoreFamily(
        name="change_quantity",
        max_steps=8,
        draw=_draw_quantity,
        say=_say_quantity,
        check=_check_quantity,
        act=_act_quantity,
        reached=_reached_quantity,
    ),
)
"""Families of this module, in a stable order."""
