from itertools import count

import msgspec

from hindcast.actors.environments.store.catalogue import build_catalogue
from hindcast.actors.environments.store.session import (
    IDLE_S,
    MAX_FACTS,
    Added,
    Address,
    Cancelled,
    CartLine,
    Moved,
    Order,
    Ordered,
    Removed,
    Requantified,
    Session,
    Sessions,
    Unwished,
    VisitorState,
    Wished,
    apply,
    opening_state,
)

CATALOGUE = build_catalogue(60, 7)
HOME = Address(name="Mira Berg", street="1 Mill Lane", city="Porto")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def sessions(clock: Clock, *, capacity: int = 3) -> Sessions:
    numbers = count()
    return Sessions(clock=clock, token=lambda: f"token-{next(numbers)}", capacity=capacity)


def session() -> Session:
    return Session(CATALOGUE, family="buy", seed=1)


def test_the_session_unused_for_longest_makes_room() -> None:
    held = sessions(Clock())
    first, second, third = (held.open(session()) for _ in range(3))
    assert held.get(first) is not None
    held.open(session())
    assert held.get(second) is None
    assert held.get(first) is not None
    assert held.get(third) is not None
    assert len(held) == 3


def test_an_idle_session_ends_and_a_used_one_does_not() -> None:
    clock = Clock()
    held = sessions(clock)
    idle, used = held.open(session()), held.open(session())
    clock.now = IDLE_S - 1
    assert held.get(used) is not None
    clock.now = IDLE_S + 1
    assert held.get(idle) is None
    assert held.get(used) is not None


def test_a_journal_has_an_end() -> None:
    one = session()
    for _ in range(MAX_FACTS):
        assert not one.full
        one.record(Wished(product=1))
    assert one.full


def test_opening_states_depend_on_family_and_seed_alone() -> None:
    assert opening_state(CATALOGUE, "buy", 4) == opening_state(CATALOGUE, "buy", 4)
    assert opening_state(CATALOGUE, "buy", 4) != opening_state(CATALOGUE, "buy", 5)
    for seed in range(50):
        state = opening_state(CATALOGUE, "remove_from_cart", seed)
        assert len({line.product for line in state.cart}) == len(state.cart) >= 3
        assert any(order.status == "processing" for order in state.orders)
        assert len({order.number for order in state.orders}) == len(state.orders)


def test_equal_items_share_a_line_and_different_options_do_not() -> None:
    state = VisitorState(address=HOME)
    for line in (
        CartLine(product=1, colour="red"),
        CartLine(product=1, colour="blue"),
        CartLine(product=1, colour="red", quantity=2),
    ):
        state = apply(state, Added(line=line))
    assert state.cart == (CartLine(product=1, colour="red", quantity=3), CartLine(product=1, colour="blue"))
    state = apply(state, Requantified(line=CartLine(product=1, colour="blue", quantity=5)))
    state = apply(state, Removed(line=CartLine(product=1, colour="red")))
    assert state.cart == (CartLine(product=1, colour="blue", quantity=5),)


def test_an_order_empties_the_cart_and_can_be_cancelled() -> None:
    order = Order(number=7, date="1 July", status="processing", lines=(CartLine(product=2),), address=HOME)
    state = apply(VisitorState(address=HOME, cart=(CartLine(product=2),)), Ordered(order=order))
    assert (state.cart, state.orders) == ((), (order,))
    state = apply(state, Cancelled(number=7))
    assert state.orders == (msgspec.structs.replace(order, status="cancelled"),)


def test_wishes_are_a_set_and_the_address_is_replaced() -> None:
    state = VisitorState(address=HOME)
    for fact in (Wished(product=3), Wished(product=3), Wished(product=4), Unwished(product=3)):
        state = apply(state, fact)
    moved = Address(name="Mira Berg", street="2 Park Avenue", city="Lyon")
    assert apply(state, Moved(address=moved)) == VisitorState(address=moved, wishes=(4,))
