"""What a visitor has in the shop: on arrival, and as a fold of the visit's facts.

`apply` is pure: the state after any prefix of the journal can be recomputed. Judges find in this way the fact that first
reached a goal. A fact's ordinal is its place in the journal, counted from 1.
"""

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import msgspec

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_seed


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
    for index, existing in enumerate(cart):
        if existing.same_item(line):
            merged = msgspec.structs.replace(existing, quantity=existing.quantity + line.quantity)
            return (*cart[:index], merged, *cart[index + 1 :])
    return (*cart, line)


def apply(state: VisitorState, fact: AnyFact) -> VisitorState:
    """The state after a fact."""
    replace = msgspec.structs.replace
    match fact:
        case Added(line=line):
            return replace(state, cart=with_line(state.cart, line))
        case Removed(line=line):
            return replace(
                state, cart=tuple(existing for existing in state.cart if not existing.same_item(line))
            )
        case Requantified(line=line):
            return replace(
                state, cart=tuple(line if existing.same_item(line) else existing for existing in state.cart)
            )
        case Wished(product=product):
            wishes = state.wishes if product in state.wishes else (*state.wishes, product)
            return replace(state, wishes=wishes)
        case Unwished(product=product):
            return replace(state, wishes=tuple(existing for existing in state.wishes if existing != product))
        case Ordered(order=order):
            return replace(state, cart=(), orders=(order, *state.orders))
        case Cancelled(number=number):
            orders = tuple(replace(o, status="cancelled") if o.number == number else o for o in state.orders)
            return replace(state, orders=orders)
        case Moved(address=address):
            return replace(state, address=address)
        case Reviewed(review=review):
            other_reviews = tuple(
                existing for existing in state.reviews if existing.product != review.product
            )
            return replace(state, reviews=(*other_reviews, review))
        case Visited() | Listed() | Viewed() | OrderViewed() | RequestRefused():
            return state


FILLED_CARTS = ("remove_from_cart", "change_quantity")
"""Families whose visitors arrive with something in the cart."""
MAX_QUANTITY = 5
"""Most pieces of an item on one line."""


def random_address(random: Random, *, name: str) -> Address:
    """A random address in the store's vocabulary."""
    street = f"{random.randint(1, 99)} {random.choice(vocabulary.STREETS)}"
    return Address(name=name, street=street, city=random.choice(vocabulary.CITIES))


def random_line(product: Product, random: Random) -> CartLine:
    """One or two pieces of a product in random options."""
    return CartLine(
        product=product.id,
        colour=random.choice(product.colours) if product.colours else "",
        size=random.choice(product.sizes) if product.sizes else "",
        quantity=random.choice((1, 1, 1, 2)),
    )


def _orders(catalogue: Catalogue, address: Address, random: Random) -> tuple[Order, ...]:
    count = random.randint(4, 6)
    numbers = sorted(random.sample(range(1000, 9999), count), reverse=True)
    days = sorted(random.sample(range(6 * 28), count), reverse=True)
    statuses = list(vocabulary.STATUSES) + random.sample(vocabulary.STATUSES[:3], 1)
    random.shuffle(statuses)
    if "processing" not in statuses[:count]:
        statuses[random.randrange(count)] = "processing"
    bought = iter(random.sample(catalogue.products, 2 * count))
    return tuple(
        Order(
            number=number,
            date=f"{day % 28 + 1} {vocabulary.MONTHS[day // 28]}",
            status=status,
            lines=tuple(random_line(next(bought), random) for _ in range(random.randint(1, 2))),
            address=address,
        )
        for number, day, status in zip(numbers, days, statuses[:count], strict=True)
    )


def _cart(catalogue: Catalogue, random: Random) -> tuple[CartLine, ...]:
    """Three or four lines, two of them of the same noun, so that the agent must read to find the right one."""
    first = random.choice(catalogue.products)
    similar = [p for p in catalogue.matching(noun=first.noun) if p.id != first.id]
    products = [first, *random.sample(similar, min(1, len(similar)))]
    further = [p for p in random.sample(catalogue.products, 8) if p not in products]
    products += further[: random.randint(1, 2)]
    random.shuffle(products)
    return tuple(random_line(product, random) for product in products)


def opening_state(catalogue: Catalogue, family: str, seed: int) -> VisitorState:
    """The state of a fresh session for the task of this family and seed."""
    random = Random(derive_seed(seed, "store", family, "opening"))
    name = f"{random.choice(vocabulary.FIRST_NAMES)} {random.choice(vocabulary.LAST_NAMES)}"
    address = random_address(random, name=name)
    return VisitorState(
        address=address,
        orders=_orders(catalogue, address, random),
        wishes=tuple(product.id for product in random.sample(catalogue.products, random.randint(0, 2))),
        cart=_cart(catalogue, random) if family in FILLED_CARTS else (),
    )


MAX_SESSIONS = 2048
"""Most sessions; beyond it the least recently used one ends."""
IDLE_S = 1800.0
"""A session unused for longer ends."""
MAX_FACTS = 500
"""Most facts in one journal: an episode of 30 steps leaves fewer than 100."""


class Session:
    """One visitor's visit."""

    def __init__(self, catalogue: Catalogue, *, family: str, seed: int) -> None:
        self.family = family
        self.seed = seed
        self.opening: VisitorState = opening_state(catalogue, family, seed)
        self.state: VisitorState = self.opening
        self.journal: list[AnyFact] = []

    @property
    def full(self) -> bool:
        """Whether the journal takes no more facts."""
        return len(self.journal) >= MAX_FACTS

    def record(self, fact: AnyFact) -> None:
        """Append a fact and fold it into the state. Callers check `full` once per request."""
        self.journal.append(fact)
        self.state = apply(self.state, fact)


class Sessions:
    """Sessions by token. The clock decides only when a session ends, never what a page shows."""

    def __init__(
        self, *, clock: Callable[[], float], token: Callable[[], str], capacity: int = MAX_SESSIONS
    ) -> None:
        self._clock = clock
        self._token = token
        self._capacity = capacity
        self._sessions: OrderedDict[str, tuple[float, Session]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session: Session) -> str:
        """Add a session and return its token."""
        self._expire()
        while len(self._sessions) >= self._capacity:
            self._sessions.popitem(last=False)
        token = self._token()
        self._sessions[token] = (self._clock(), session)
        return token

    def get(self, token: str) -> Session | None:
        """The session of a token, now the latest used; None when unknown or ended."""
        self._expire()
        entry = self._sessions.pop(token, None)
        if entry is None:
            return None
        self._sessions[token] = (self._clock(), entry[1])
        return entry[1]

    def close(self, token: str) -> bool:
        """End a session; False when there was none."""
        return self._sessions.pop(token, None) is not None

    def _expire(self) -> None:
        oldest = self._clock() - IDLE_S
        while self._sessions:
            token, (used, _) = next(iter(self._sessions.items()))
            if used >= oldest:
                return
            del self._sessions[token]


HEADER = "x-control-token"


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /_control/sessions."""

    task: Task


class VisitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a visit: everything that an evaluator of the store reads (`Evidence.probes`)."""

    catalogue: str
    """Content digest of the catalogue."""
    products: int
    catalogue_seed: int
    family: str
    seed: int
    opening: VisitorState
    """State on arrival."""
    journal: tuple[AnyFact, ...]
    state: VisitorState
    """Final state: `opening` with the journal applied."""
