"""What a visitor has in the shop, as a fold of the visit's facts.

`apply` is pure: the state after any prefix of the journal can be recomputed. Judges find in this way the fact that first
reached a goal. A fact's ordinal is its place in the journal, counted from 1.
"""

from typing import TypeAlias

import msgspec


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Destination of orders."""

    name: str
    street: str
    city: str


class CartLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a cart or an order."""

    product: int
    colour: str = ""
    """Empty when the product has no choice of colors."""
    size: str = ""
    """Empty when the product has no choice of sizes."""
    quantity: int = 1

    def same_item(self, other: "CartLine") -> bool:
        """Whether both lines name the same product with the same options."""
        return (self.product, self.colour, self.size) == (other.product, other.colour, other.size)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order and its status."""

    number: int
    date: str
    status: str
    lines: tuple[CartLine, ...]
    address: Address


class WrittenReview(msgspec.Struct, frozen=True, kw_only=True):
    """A review by this visitor."""

    product: int
    stars: int
    text: str


class VisitorState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a visitor has."""

    address: Address
    cart: tuple[CartLine, ...] = ()
    wishes: tuple[int, ...] = ()
    orders: tuple[Order, ...] = ()
    """Orders, newest first."""
    reviews: tuple[WrittenReview, ...] = ()


class JournalFact(msgspec.Struct, frozen=True, kw_only=True, tag_field="fact", omit_defaults=True):
    """Base of the facts in a journal."""


class Visited(JournalFact, frozen=True, kw_only=True, tag="visited"):
    """A page without facts of its own was opened."""

    page: str


class Listed(JournalFact, frozen=True, kw_only=True, tag="listed"):
    """A category or a search result was shown."""

    query: str = ""
    """Query of a search; empty for a category."""
    category: str = ""
    sort: str = "relevance"
    page: int = 1
    exact: bool = True
    shown: tuple[int, ...] = ()
    """Products on the page, in their order."""


class Viewed(JournalFact, frozen=True, kw_only=True, tag="viewed"):
    """A product's page or one of its sub-pages was opened."""

    product: int
    part: str = "product"
    """`product`, `description`, `features`, `reviews` or `write`."""


class Added(JournalFact, frozen=True, kw_only=True, tag="added"):
    """A line was put into the cart."""

    line: CartLine


class Removed(JournalFact, frozen=True, kw_only=True, tag="removed"):
    """A line left the cart."""

    line: CartLine


class Requantified(JournalFact, frozen=True, kw_only=True, tag="requantified"):
    """A line of the cart now has this quantity."""

    line: CartLine


class Wished(JournalFact, frozen=True, kw_only=True, tag="wished"):
    """A product was added to the wish list."""

    product: int


class Unwished(JournalFact, frozen=True, kw_only=True, tag="unwished"):
    """A product was removed from the wish list."""

    product: int


class Ordered(JournalFact, frozen=True, kw_only=True, tag="ordered"):
    """The cart became an order."""

    order: Order


class OrderViewed(JournalFact, frozen=True, kw_only=True, tag="order_viewed"):
    """An order's page was opened."""

    number: int


class Cancelled(JournalFact, frozen=True, kw_only=True, tag="cancelled"):
    """An order was cancelled."""

    number: int


class Moved(JournalFact, frozen=True, kw_only=True, tag="moved"):
    """The address changed."""

    address: Address


class Reviewed(JournalFact, frozen=True, kw_only=True, tag="reviewed"):
    """A review was written."""

    review: WrittenReview


class RequestRefused(JournalFact, frozen=True, kw_only=True, tag="refused"):
    """The shop refused a request."""

    note: str
    """Name of the notice that was shown."""


AnyFact: TypeAlias = (
    Visited
    | Listed
    | Viewed
    | Added
    | Removed
    | Requantified
    | Wished
    | Unwished
    | Ordered
    | OrderViewed
    | Cancelled
    | Moved
    | Reviewed
    | RequestRefused
)


def with_line(cart: tuple[CartLine, ...], line: CartLine) -> tuple[CartLine, ...]:
    """The cart with this line added: quantities of the same item add up."""
    for index, held in enumerate(cart):
        if held.same_item(line):
            merged = msgspec.structs.replace(held, quantity=held.quantity + line.quantity)
            return (*cart[:index], merged, *cart[index + 1 :])
    return (*cart, line)


def apply(state: VisitorState, fact: AnyFact) -> VisitorState:
    """The state after a fact."""
    replace = msgspec.structs.replace
    match fact:
        case Added(line=line):
            return replace(state, cart=with_line(state.cart, line))
        case Removed(line=line):
            return replace(state, cart=tuple(held for held in state.cart if not held.same_item(line)))
        case Requantified(line=line):
            return replace(state, cart=tuple(line if held.same_item(line) else held for held in state.cart))
        case Wished(product=product):
            wishes = state.wishes if product in state.wishes else (*state.wishes, product)
            return replace(state, wishes=wishes)
        case Unwished(product=product):
            return replace(state, wishes=tuple(held for held in state.wishes if held != product))
        case Ordered(order=order):
            return replace(state, cart=(), orders=(order, *state.orders))
        case Cancelled(number=number):
            orders = tuple(replace(o, status="cancelled") if o.number == number else o for o in state.orders)
            return replace(state, orders=orders)
        case Moved(address=address):
            return replace(state, address=address)
        case Reviewed(review=review):
            kept = tuple(held for held in state.reviews if held.product != review.product)
            return replace(state, reviews=(*kept, review))
        case Visited() | Listed() | Viewed() | OrderViewed() | RequestRefused():
            return state
