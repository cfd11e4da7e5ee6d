"""How instructions name a product, and how a demonstrator reaches it.

A target is a phrase that is true of exactly one product of the catalogue: its title, a few words that only it has, or a
superlative among similar ones.
"""

from collections.abc import Iterator
from random import Random

import msgspec

from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.actors.environments.store.families.base import Goal, PageView, click, fill
from hindcast.actors.environments.store.pages import SORT_LABELS
from hindcast.core.domain.action import Action

SEARCH_BOX = "Search the store"


class ProductTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A phrase and the way to the product that it means."""

    product: Product
    phrase: str
    """The phrase, such as `the cheapest oak lamp`."""
    query: str
    sort: str = "relevance"

    def goal(self) -> Goal:
        """Plain values to merge into a task's goal."""
        return {
            "product": self.product.id,
            "title": self.product.title,
            "phrase": self.phrase,
            "query": self.query,
            "sort": self.sort,
        }


def groups_of(catalogue: Catalogue, product: Product) -> Iterator[tuple[str, tuple[Product, ...]]]:
    """(query, products) of the groups of similar products that a product belongs to; itself included."""
    noun = product.noun
    yield f"{product.material} {noun}", catalogue.matching(noun=noun, material=product.material)
    yield f"{product.brand} {noun}", catalogue.matching(noun=noun, brand=product.brand)
    yield noun, catalogue.matching(noun=noun)


def cheapest(products: tuple[Product, ...]) -> Product | None:
    """The one cheapest of at least two; None when two share the lowest price."""
    ordered = sorted(products, key=lambda product: product.price_cents)
    return ordered[0] if len(ordered) > 1 and ordered[0].price_cents < ordered[1].price_cents else None


def best_rated(products: tuple[Product, ...]) -> Product | None:
    """The one best rated of at least two; None when two share the highest rating."""
    ordered = sorted(products, key=lambda product: -product.rating_tenths)
    return ordered[0] if len(ordered) > 1 and ordered[0].rating_tenths > ordered[1].rating_tenths else None


def titled(product: Product) -> ProductTarget:
    """The product by its whole title."""
    return ProductTarget(product=product, phrase=f"the {product.title}", query=product.title)


def targets_of(catalogue: Catalogue, product: Product) -> tuple[ProductTarget, ...]:
    """Every phrase that is true of this product alone, its title first."""
    noun = product.noun
    targets = [titled(product)]
    for words, alike in (
        (f"{product.brand} {noun}", catalogue.matching(noun=noun, brand=product.brand)),
        (f"{product.adjective} {noun}", catalogue.matching(noun=noun, adjective=product.adjective)),
        (
            f"{product.brand} {product.material} {noun}",
            catalogue.matching(noun=noun, brand=product.brand, material=product.material),
        ),
    ):
        if len(alike) == 1:
            targets.append(ProductTarget(product=product, phrase=f"the {words}", query=words))
    for query, alike in groups_of(catalogue, product):
        if cheapest(alike) is product:
            targets.append(
                ProductTarget(product=product, phrase=f"the cheapest {query}", query=query, sort="price")
            )
        if best_rated(alike) is product:
            targets.append(
                ProductTarget(product=product, phrase=f"the best rated {query}", query=query, sort="rating")
            )
    return tuple(targets)


def draw_target(catalogue: Catalogue, random: Random, *, superlatives: bool = True) -> ProductTarget:
    """A target: by title, by a few words, or by a superlative."""
    kind = random.choice(
        ("title", "words", "superlative", "superlative") if superlatives else ("title", "words")
    )
    for _ in range(40):
        by_title, *described = targets_of(catalogue, random.choice(catalogue.products))
        if kind == "title":
            return by_title
        fitting = [target for target in described if (target.sort != "relevance") == (kind == "superlative")]
        if fitting:
            return random.choice(fitting)
    return titled(random.choice(catalogue.products))


def search_for(view: PageView, query: str, sort: str = "relevance") -> Action | None:
    """The next action towards the sorted results of a query; None when they are on the page."""
    if view.path != "/search" or view.query_parameter("q") != query:
        return fill(view.field(SEARCH_BOX), query, name="Search")
    if (view.query_parameter("sort") or "relevance") != sort:
        return click(view.exactly(next(label for order, label in SORT_LABELS.items() if order == sort)))
    return None


def reach(view: PageView, goal: Goal) -> Action | None:
    """The next action towards a goal's product; None when its page, or a part of it, is open."""
    address = f"/product/{goal['product']}"
    if view.path == address or view.path.startswith(f"{address}/"):
        return None
    action = search_for(view, goal["query"], goal["sort"])
    if action is not None:
        return action
    link = view.exactly(goal["title"])
    return click(link or view.exactly("Next page"))
