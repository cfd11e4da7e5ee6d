"""Families about what belongs to the visitor: order_status, cancel_order, change_address, wish_list, write_review."""

from collections.abc import Iterator, Sequence
from random import Random

import msgspec

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, stars_text
from hindcast.actors.environments.store.families.base import (
    DONE,
    CheckResult,
    Goal,
    NothingToAsk,
    PageView,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
    answer,
    at_the_end,
    check_words,
    click,
    fill,
    first,
    phrased,
)
from hindcast.actors.environments.store.families.targets import draw_target, reach, targets_of
from hindcast.actors.environments.store.session import Address, Order, VisitorState, random_address
from hindcast.core.domain.action import Action


def order_phrases(catalogue: Catalogue, orders: Sequence[Order], order: Order) -> tuple[str, ...]:
    """Every phrase that is true of this order alone, its number first."""
    phrases = [f"order {order.number}"]
    product = catalogue[order.lines[0].product]
    ordered = [catalogue[line.product] for bought in orders for line in bought.lines]
    if sum(bought.title == product.title for bought in ordered) == 1:
        phrases.append(f"my order of the {product.title}")
    if sum(bought.noun == product.noun for bought in ordered) == 1:
        phrases.append(f"my order of the {product.noun}")
    if order is orders[0]:
        phrases.append("my latest order")
    if order is orders[-1]:
        phrases.append("my oldest order")
    return tuple(phrases)


say_status = phrased(
    "What is the status of {phrase}?",
    "Tell me the status of {phrase}.",
    "Look up {phrase} and tell me its status.",
    "How far is {phrase}? Tell me its status.",
)
"""An instruction that asks for an order's status."""


say_cancel = phrased(
    "Cancel {phrase}.",
    "Please cancel {phrase} for me.",
    "I changed my mind. Cancel {phrase}.",
)
"""An instruction that asks to cancel an order."""


def to_order(view: PageView, number: int) -> Action | None:
    """The next action towards an order's page; None when it is open."""
    if view.path == f"/orders/{number}":
        return None
    return click(view.exactly(f"Order {number}") or view.exactly("Orders"))


def _draw_status(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    order = random.choice(opening.orders)
    phrase = random.choice(order_phrases(catalogue, opening.orders, order))
    return {"number": order.number, "phrase": phrase, "answer": order.status}


def _check_status(goal: Goal, ending: VisitEnd) -> CheckResult:
    return check_words(ending.answer, goal["answer"], vocabulary.STATUSES)


def _act_status(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    action = to_order(view, goal["number"])
    if action is not None:
        return action
    status = view.find(r"Status: (\w+)")
    return Action(name="Scroll Down") if status is None else answer(status)


def _reached_status(ending: VisitEnd) -> Iterator[ReachedGoal]:
    opened = {fact.number for _, fact in ending.facts("order_viewed")}
    for order in ending.opening.orders:
        if order.number in opened and check_words(ending.answer, order.status, vocabulary.STATUSES).success:
            for phrase in order_phrases(ending.catalogue, ending.opening.orders, order):
                goal = {"number": order.number, "phrase": phrase, "answer": order.status}
                yield ReachedGoal(goal, at_the_end(ending))


def _draw_cancel(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    open_orders = [order for order in opening.orders if order.status == "processing"]
    if not open_orders:
        raise NothingToAsk("the visitor has no order in processing: there is nothing to cancel")
    order = random.choice(open_orders)
    return {"number": order.number, "phrase": random.choice(order_phrases(catalogue, opening.orders, order))}


def _cancelled(orders: tuple[Order, ...], number: int) -> tuple[Order, ...]:
    return tuple(
        msgspec.structs.replace(order, status="cancelled") if order.number == number else order
        for order in orders
    )


def _check_cancel(goal: Goal, ending: VisitEnd) -> CheckResult:
    expected_orders = _cancelled(ending.opening.orders, goal["number"])
    return CheckResult(
        ending.state.orders == expected_orders, f"only order {goal['number']} should have been cancelled"
    )


def _act_cancel(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    action = to_order(view, goal["number"])
    if action is not None:
        return action
    return DONE if view.says("Status: cancelled") else click(view.exactly("Cancel order"))


def _reached_cancel(ending: VisitEnd) -> Iterator[ReachedGoal]:
    orders_at_start = ending.opening.orders
    for ordinal, fact in ending.facts("cancelled"):
        order = next((order for order in orders_at_start if order.number == fact.number), None)
        if order is not None and ending.states[ordinal].orders == _cancelled(orders_at_start, order.number):
            for phrase in order_phrases(ending.catalogue, orders_at_start, order):
                yield ReachedGoal({"number": order.number, "phrase": phrase}, ordinal)


def _draw_address(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    def attempts() -> Iterator[Goal | None]:
        while True:
            address = random_address(random, name=opening.address.name)
            if random.random() < 0.35:
                address = msgspec.structs.replace(address, city=opening.address.city)
            elif address.city == opening.address.city:
                yield None
            yield (
                _address_goal(opening.address, address) if address.street != opening.address.street else None
            )

    return first(attempts(), family="change_address")


def _address_goal(old_address: Address, new_address: Address) -> Goal:
    return {
        "street": new_address.street,
        "city": new_address.city,
        "within": old_address.city == new_address.city,
    }


def _say_address(goal: Goal, random: Random) -> str:
    if goal["within"]:
        return random.choice(
            (
                "Change the street of my address to {street}.",
                "I moved to {street} in {city}, the same city as before. Change my address.",
            )
        ).format(street=goal["street"], city=goal["city"])
    return random.choice(
        (
            "Change my address to {street}, {city}.",
            "I moved. My new address is {street}, {city}. Please save it.",
            "Set my street to {street} and my city to {city}.",
        )
    ).format(street=goal["street"], city=goal["city"])


def _check_address(goal: Goal, ending: VisitEnd) -> CheckResult:
    expected_address = Address(name=ending.opening.address.name, street=goal["street"], city=goal["city"])
    return CheckResult(
        ending.state.address == expected_address, f"the address should be {goal['street']}, {goal['city']}"
    )


def _act_address(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if view.path == "/account":
        saved = view.says(f"Street: {goal['street']}") and view.says(f"City: {goal['city']}")
        return DONE if saved else click(view.exactly("Change address"))
    if view.path != "/account/address":
        return click(view.exactly("Account"))
    for label, key in (("Street", "street"), ("City", "city")):
        field = view.field(label)
        if field is None or field.value != goal[key]:
            return fill(field, goal[key])
    return click(view.exactly("Save"))


def _reached_address(ending: VisitEnd) -> Iterator[ReachedGoal]:
    was = ending.opening.address
    for ordinal, fact in ending.facts("moved"):
        if fact.address.name == was.name and fact.address.street != was.street:
            yield ReachedGoal(_address_goal(was, fact.address), ordinal)


MAX_QUOTED = 80
"""Longest review in an instruction."""


def _draw_wish(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    def attempts() -> Iterator[Goal | None]:
        while True:
            target = draw_target(catalogue, random)
            yield None if target.product.id in opening.wishes else target.goal()

    return first(attempts(), family="wish_list")


_say_wish = phrased(
    "Add {phrase} to my wish list.",
    "Put {phrase} on my wish list.",
    "Save {phrase} to the wish list for later.",
    "I might want {phrase} one day. Keep it on my wish list.",
)


def _check_wish(goal: Goal, ending: VisitEnd) -> CheckResult:
    expected_wishes = {*ending.opening.wishes, goal["product"]}
    return CheckResult(
        set(ending.state.wishes) == expected_wishes, f"the wish list should have gained only {goal['title']}"
    )


def _act_wish(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if view.path == "/wishes" and view.exactly(goal["title"]) is not None:
        return DONE
    return reach(view, goal) or click(view.exactly("Add to wish list") or view.exactly("Back to product"))


def _reached_wish(ending: VisitEnd) -> Iterator[ReachedGoal]:
    wishes_at_start = set(ending.opening.wishes)
    for ordinal, _ in ending.facts("wished", "unwished"):
        wishes = set(ending.states[ordinal].wishes)
        if wishes_at_start < wishes and len(wishes) == len(wishes_at_start) + 1:
            for target in targets_of(ending.catalogue, ending.catalogue[(wishes - wishes_at_start).pop()]):
                yield ReachedGoal(target.goal(), ordinal)


def _draw_review(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    target = draw_target(catalogue, random)
    return {**target.goal(), "stars": random.randint(1, 5), "text": random.choice(vocabulary.REVIEWS)}


_say_review = phrased(
    'Write a review of {phrase}: {stars}, "{text}".',
    'Give {phrase} {stars} and write "{text}".',
    'Review {phrase} with {stars} and the words "{text}".',
    words=lambda goal: {**goal, "stars": stars_text(goal["stars"])},
)


def _check_review(goal: Goal, ending: VisitEnd) -> CheckResult:
    written = ending.state.reviews
    right = (
        len(written) == 1
        and (written[0].product, written[0].stars) == (goal["product"], goal["stars"])
        and written[0].text.casefold() == goal["text"].casefold()
    )
    return CheckResult(
        right, f"exactly one review, of {goal['title']}, should say {goal['stars']} stars, {goal['text']!r}"
    )


def _act_review(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    action = reach(view, goal)
    if action is not None:
        return action
    if view.path.endswith("/write"):
        stars, text = view.field("Stars"), view.field("Review")
        label = stars_text(goal["stars"])
        if stars is None or stars.value != label:
            return fill(stars, label, name="Select Dropdown Option")
        if text is None or text.value != goal["text"]:
            return fill(text, goal["text"])
        return click(view.exactly("Send review"))
    if view.says(f"you: {goal['text']}"):
        return DONE
    return click(view.exactly("Write a review") or view.exactly("Back to product"))


def _reached_review(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for ordinal, fact in ending.facts("reviewed"):
        review = fact.review
        if len(ending.states[ordinal].reviews) == 1 and len(review.text) <= MAX_QUOTED:
            for target in targets_of(ending.catalogue, ending.catalogue[review.product]):
                yield ReachedGoal({**target.goal(), "stars": review.stars, "text": review.text}, ordinal)


FAMILIES = (
    StoreFamily(
        name="wish_list",
        max_steps=9,
        draw=_draw_wish,
        say=_say_wish,
        check=_check_wish,
        act=_act_wish,
        reached=_reached_wish,
    ),
    StoreFamily(
        name="write_review",
        max_steps=13,
        draw=_draw_review,
        say=_say_review,
        check=_check_review,
        act=_act_review,
        reached=_reached_review,
    ),
    StoreFamily(
        name="order_status",
        max_steps=7,
        draw=_draw_status,
        say=say_status,
        check=_check_status,
        act=_act_status,
        reached=_reached_status,
    ),
    StoreFamily(
        name="cancel_order",
        max_steps=8,
        draw=_draw_cancel,
        say=say_cancel,
        check=_check_cancel,
        act=_act_cancel,
        reached=_reached_cancel,
    ),
    StoreFamily(
        name="change_address",
        max_steps=12,
        draw=_draw_address,
        say=_say_address,
        check=_check_address,
        act=_act_address,
        reached=_reached_address,
    ),
)
"""Families of this module, in a stable order."""
