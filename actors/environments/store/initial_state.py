"""The visitor's state on arrival: address, earlier orders, wish list, sometimes a filled cart. Determined by the task."""

from random import Random

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.actors.environments.store.session import Address, CartLine, Order, VisitorState
from hindcast.core.seeds import derive_seed

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
    chosen = [first, *random.sample(similar, min(1, len(similar)))]
    others = [p for p in random.sample(catalogue.products, 8) if p not in chosen]
    chosen += others[: random.randint(1, 2)]
    random.shuffle(chosen)
    return tuple(random_line(product, random) for product in chosen)


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
