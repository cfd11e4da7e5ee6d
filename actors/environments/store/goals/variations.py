"""Goals close to a goal: the embedded generator of the curriculum varies a failed task with them.

Each change sketches the new goal in existing names. Hindsight on the visit that does it (`visits.goals_like`)
gives the goals with exactly that effect, and their wordings. So every variation can be reached, by construction. The
session is the parent's (its seed), so that visits begin in the same state.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from random import Random
from typing import NamedTuple

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.actors.environments.store.families import FAMILIES, Goal
from hindcast.actors.environments.store.families.base import NothingToAsk
from hindcast.actors.environments.store.goals.visits import NotOffered, StartPage, goals_like, product_titled
from hindcast.actors.environments.store.session import MAX_QUANTITY, opening_state
from hindcast.core.domain.task import Task

NEIGHBOURS: dict[str, tuple[str, ...]] = {
    "find_price": ("find_rating", "find_feature"),
    "find_rating": ("find_price", "find_feature"),
    "find_feature": ("find_price", "find_rating"),
    "find_product": ("compare", "find_price"),
    "compare": ("find_product", "find_price"),
    "add_to_cart": ("wish_list", "buy"),
    "add_several": ("add_to_cart", "buy"),
    "buy": ("add_to_cart", "wish_list"),
    "wish_list": ("add_to_cart", "write_review"),
    "write_review": ("wish_list", "find_rating"),
    "remove_from_cart": ("change_quantity",),
    "change_quantity": ("remove_from_cart",),
    "order_status": ("cancel_order",),
    "cancel_order": ("order_status",),
    "change_address": (),
    "impossible": (),
}
"""Families with a similar beginning: a policy that solves the one has most of the other."""
CANDIDATES = 12
"""Most products tried for one change."""


class Variation(NamedTuple):
    """A goal close to another."""

    change: str
    """The kind of change: one of `CHANGES`."""
    family: str
    goal: Goal


class Parent(NamedTuple):
    """The varied task, the start of its visits, and the allowed families."""

    task: Task
    start: StartPage
    families: Collection[str]

    def at(self, family: str) -> StartPage:
        """Start of a visit with the same seed in this family."""
        catalogue = self.start.catalogue
        return StartPage(catalogue, opening_state(catalogue, family, self.task.seed))

    @property
    def products(self) -> list[Product]:
        """The products of its goal, in the order of naming."""
        return [product for product in products_of(self.task.goal, self.start.catalogue) if product]


def vary(catalogue: Catalogue, task: Task, *, families: Collection[str], random: Random) -> Variation | None:
    """A goal close to the task's, in one of `families`; None where no change leads to one. Equal draws give equal goals."""
    parent = Parent(task, StartPage(catalogue, opening_state(catalogue, task.family, task.seed)), families)
    changes = list(CHANGES)
    random.shuffle(changes)
    for change in changes:
        for family, candidates in islice(CHANGES[change](parent, random), CANDIDATES):
            goals = [
                goal
                for goal in candidates
                if family in families and not _is_parents_goal(parent, family, goal)
            ]
            if goals:
                return Variation(change, family, random.choice(goals))
    return None


def products_of(goal: Goal, catalogue: Catalogue) -> Iterator[Product | None]:
    """The products that a goal names."""
    if "items" in goal:
        for item in goal["items"]:
            yield catalogue.get(item["product"])
    elif "product" in goal:
        yield catalogue.get(goal["product"])
    else:
        titles = goal.get("titles") or ([goal["answer"]] if "query" in goal and "answer" in goal else [])
        for title in titles:
            try:
                yield product_titled(catalogue, title)
            except NotOffered:
                continue


def _is_parents_goal(parent: Parent, family: str, goal: Goal) -> bool:
    parent_goal = {name: value for name, value in parent.task.goal.items() if name != "catalogue"}
    return family == parent.task.family and goal == parent_goal


Found = Iterator[tuple[str, list[Goal]]]
"""Family and goals in it, one group of goals per sketch."""


def _other_products(parent: Parent, random: Random) -> Found:
    """The same goal with other products of the same category."""
    family = parent.task.family
    if not parent.products:
        return
    category = parent.products[0].category
    alternatives = [
        product
        for product in parent.start.catalogue.products
        if product.category == category and product not in parent.products
    ]
    random.shuffle(alternatives)
    for product in alternatives:
        for sketch in _sketches(family, [product, *parent.products[1:]], parent, random):
            yield family, goals_like(family, sketch, parent.start)


def _harder(parent: Parent, random: Random) -> Found:
    """A harder goal: more pieces, a second product, or words that must be looked up."""
    task, start, goal = parent.task, parent.start, parent.task.goal
    if task.family == "add_to_cart":
        without_options = [p for p in start.catalogue.products if not (p.colours or p.sizes)]
        second = random.choice(without_options)
        items = [_item(goal["product"], goal), _item(second.id, {})]
        if second.noun != parent.products[0].noun:
            yield "add_several", goals_like("add_several", {"items": items}, parent.at("add_several"))
    if "quantity" in goal and goal["quantity"] < MAX_QUANTITY and task.family in ("add_to_cart", "buy"):
        item = {name: goal[name] for name in ("product", "phrase", "colour", "size")}
        yield task.family, goals_like(task.family, {**item, "quantity": goal["quantity"] + 1}, start)
    yield task.family, [reworded for reworded in _reworded(parent) if _looked_up(reworded) > _looked_up(goal)]


def _easier(parent: Parent, random: Random) -> Found:
    """An easier goal: a single piece, one of two products, or the plain name."""
    task, start, goal = parent.task, parent.start, parent.task.goal
    if task.family == "add_several":
        for item in goal["items"]:
            yield "add_to_cart", goals_like("add_to_cart", item, parent.at("add_to_cart"))
    if goal.get("quantity", 1) > 1 and task.family in ("add_to_cart", "buy"):
        single = {name: goal[name] for name in ("product", "phrase", "colour", "size")}
        yield task.family, goals_like(task.family, {**single, "quantity": goal["quantity"] - 1}, start)
    yield task.family, [reworded for reworded in _reworded(parent) if _looked_up(reworded) < _looked_up(goal)]


def _reworded(parent: Parent) -> list[Goal]:
    """Goals that ask for the same in other words."""
    worded = ("phrase", "query", "sort", "items", "catalogue")
    sketch = {name: value for name, value in parent.task.goal.items() if name not in worded}
    if "phrase" not in parent.task.goal or parent.task.family == "impossible":
        return []
    return goals_like(parent.task.family, sketch, parent.start)


def _looked_up(goal: Goal) -> int:
    """How much must be looked up to know what is meant: a title nothing, other words something, a superlative most."""
    if goal.get("sort", "relevance") != "relevance":
        return 2
    plain_name = goal.get("title") or str(goal.get("number"))
    return 0 if plain_name in goal.get("phrase", "") else 1


def _neighbours(parent: Parent, random: Random) -> Found:
    """A goal of a family with a similar beginning, about the same products; without products, in the same session."""
    for family in random.sample(NEIGHBOURS[parent.task.family], len(NEIGHBOURS[parent.task.family])):
        start = parent.at(family)
        sketches = list(_sketches(family, parent.products, parent, random))
        for sketch in sketches:
            yield family, goals_like(family, sketch, start)
        if not sketches:
            yield from _drawn_goals(family, start, random)


def _siblings(parent: Parent, random: Random) -> Found:
    """Another goal of the same family in the same session."""
    yield from _drawn_goals(parent.task.family, parent.start, random)


def _drawn_goals(family: str, start: StartPage, random: Random) -> Found:
    for _ in range(CANDIDATES):
        try:
            yield family, [FAMILIES[family].draw(start.catalogue, start.opening, random)]
        except NothingToAsk:
            return


def _sketches(family: str, products: Sequence[Product], parent: Parent, random: Random) -> Iterator[Goal]:
    """Sketches of a family about the products; parts of the parent's goal are kept where they apply. May be empty."""
    if not products or family in ("remove_from_cart", "change_quantity", "impossible"):
        return
    first, parent_goal = products[0], parent.task.goal
    match family:
        case "find_price":
            yield {"product": first.id, "answer": first.price}
        case "find_rating":
            yield {"product": first.id, "answer": first.rating}
        case "find_feature":
            feature = parent_goal.get("feature") or random.choice(tuple(vocabulary.FEATURES))
            yield {"product": first.id, "feature": feature, "answer": first.features[feature]}
        case "find_product":
            yield {"answer": first.title}
        case "compare":
            yield from _pairs(first, parent, random)
        case "wish_list":
            yield {"product": first.id}
        case "write_review":
            stars, text = parent_goal.get("stars"), parent_goal.get("text")
            yield {
                "product": first.id,
                "stars": stars or random.randint(1, 5),
                "text": text or random.choice(vocabulary.REVIEWS),
            }
        case "add_to_cart" | "buy":
            yield {
                **_item(first.id, {}),
                **_options(first, random),
                "quantity": parent_goal.get("quantity", 1),
            }
        case "add_several":
            without_options = [p for p in products if not (p.colours or p.sizes)]
            if len(products) == len(without_options) == 2 and products[0].noun != products[1].noun:
                yield {"items": [_item(product.id, {}) for product in products]}


def _pairs(product: Product, parent: Parent, random: Random) -> Iterator[Goal]:
    """Two similar products, either of which may be the answer."""
    alike = [
        candidate
        for candidate in parent.start.catalogue.matching(noun=product.noun)
        if candidate != product
        and (candidate.material == product.material or candidate.brand == product.brand)
    ]
    if alike:
        titles = [
            choice.title for choice in sorted((product, random.choice(alike)), key=lambda choice: choice.id)
        ]
        for title in titles:
            yield {"titles": titles, "answer": title}


def _item(product: int, goal: Goal) -> Goal:
    return {
        "product": product,
        "colour": goal.get("colour", ""),
        "size": goal.get("size", ""),
        "quantity": 1,
    }


def _options(product: Product, random: Random) -> Goal:
    return {
        "colour": random.choice(product.colours or ("",)),
        "size": random.choice(product.sizes or ("",)),
    }


CHANGES: dict[str, Callable[[Parent, Random], Found]] = {
    "product": _other_products,
    "more": _harder,
    "less": _easier,
    "neighbour": _neighbours,
    "sibling": _siblings,
}
"""Ways to change a goal, by their name in `task.proposed`."""
