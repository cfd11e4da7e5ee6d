"""Parses an instruction into its goal, for goals that were written in words.

It parses by generation: goals of names in the text are phrased in every way of their family, and the goal is the one
whose phrasing equals the text. So nothing is guessed, and a text that no task of the store uses is no goal.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, permutations
from random import Random
from typing import Any, NamedTuple

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, Product, tokens_of
from hindcast.actors.environments.store.families import FAMILIES, Goal, account, cart
from hindcast.actors.environments.store.families.cart import COUNTS, item_goal
from hindcast.actors.environments.store.families.impossible import absent
from hindcast.actors.environments.store.families.questions import best_goal, pair_goal
from hindcast.actors.environments.store.families.targets import ProductTarget, groups_of, targets_of
from hindcast.actors.environments.store.goals.visits import MAX_STARS, StartPage
from hindcast.actors.environments.store.session import MAX_QUANTITY, CartLine, Order

MAX_TEXT = 400
"""Longest instruction; longer texts are no phrasing of a task."""
_SLOTS = {"street": "\x00", "city": "\x01"}


class ParsedInstruction(NamedTuple):
    """The goal that a text asks for."""

    family: str
    goal: Goal


class _Choices(Random):
    """Makes the choices of a script, then always the first; records how many options there were."""

    def __init__(self, script: Sequence[int]) -> None:
        super().__init__(0)
        self._script = script
        self.made: list[tuple[int, int]] = []
        """Choice and number of options, in order."""

    def choice(self, seq: Any) -> Any:
        """The option that the script names."""
        index = len(self.made)
        option = self._script[index] if index < len(self._script) else 0
        self.made.append((option, len(seq)))
        return seq[option]

    def sample(self, population: Any, k: int, *, counts: Any = None) -> Any:
        """Likewise, among all orders."""
        return list(self.choice(list(permutations(population, k))))


def phrasings(family: str, goal: Goal) -> Iterator[str]:
    """Every text in which a family asks for a goal."""
    scripts: list[list[int]] = [[]]
    while scripts:
        script = scripts.pop()
        choices = _Choices(script)
        yield FAMILIES[family].say(goal, choices)
        options = [pick for pick, _ in choices.made]
        for index in range(len(script), len(options)):
            scripts += [[*options[:index], option] for option in range(1, choices.made[index][1])]


def goal_said(text: str, start: StartPage) -> ParsedInstruction | None:
    """The goal that a text asks for in a visit that begins at `start`; None where no task of the store has this text."""
    text = text.strip()
    if not text or len(text) > MAX_TEXT:
        return None
    for family, goal in _candidates(text, start):
        if text in phrasings(family, goal):
            return ParsedInstruction(family, goal)
    return None


def _candidates(text: str, start: StartPage) -> Iterator[ParsedInstruction]:
    """Goals that a text may ask for, by the names in it."""
    index = _index(start.catalogue)
    targets = [target for phrase, alike in index.targets.items() if phrase in text for target in alike]
    for target in targets:
        yield from _about_product(text, target)
    for first_target, second_target in permutations(targets, 2):
        if (
            first_target.phrase not in second_target.phrase
            and second_target.phrase not in first_target.phrase
        ):
            yield from _about_two(text, first_target, second_target)
    titled = [product for title, product in index.titles.items() if title in text]
    for first_product, second_product in combinations(titled, 2):
        yield from _compared(start.catalogue, first_product, second_product)
    for query in (query for query in index.queries if query in text):
        yield from _best(start.catalogue, words=query, category="")
    for category in (category for category in start.catalogue.categories if category in text):
        yield from _best(start.catalogue, words="", category=category)
    yield from _about_opening(text, start)
    yield from _moving(text, start)
    yield from _out_of_reach(text, start)


def _about_product(text: str, target: ProductTarget) -> Iterator[ParsedInstruction]:
    goal, product = target.goal(), target.product
    yield ParsedInstruction("find_price", {**goal, "answer": product.price})
    yield ParsedInstruction("find_rating", {**goal, "answer": product.rating})
    for feature, answer in product.features.items():
        yield ParsedInstruction("find_feature", {**goal, "feature": feature, "answer": answer})
    yield ParsedInstruction("wish_list", goal)
    quoted = text.partition('"')[2].rpartition('"')[0]
    if quoted:
        for stars in range(1, MAX_STARS + 1):
            yield ParsedInstruction("write_review", {**goal, "stars": stars, "text": quoted})
    for line in _lines(text, product):
        yield ParsedInstruction("add_to_cart", item_goal(target, line))
        yield ParsedInstruction("buy", item_goal(target, line))
    for line in _lines(text, product, offered=False):
        yield ParsedInstruction("impossible", {"kind": "colour", **item_goal(target, line)})


def _lines(text: str, product: Product, *, offered: bool = True) -> Iterator[CartLine]:
    """Lines of the product in options that the text names; not `offered`: in a color that it does not have."""
    colours: Sequence[str] = product.colours or ("",)
    if not offered:
        colours = (
            [option for option in vocabulary.COLOURS if option not in product.colours]
            if product.colours
            else []
        )
    for colour in (option for option in colours if option in text):
        for size in (option for option in product.sizes or ("",) if option in text):
            for quantity in COUNTS:
                yield CartLine(product=product.id, colour=colour, size=size, quantity=quantity)


def _about_two(
    text: str, first_target: ProductTarget, second_target: ProductTarget
) -> Iterator[ParsedInstruction]:
    if first_target.product.noun == second_target.product.noun:
        return
    for first_line in _lines(text, first_target.product):
        for second_line in _lines(text, second_target.product):
            if first_line.quantity == second_line.quantity == 1:
                yield ParsedInstruction(
                    "add_several",
                    {"items": [item_goal(first_target, first_line), item_goal(second_target, second_line)]},
                )


def _compared(catalogue: Catalogue, first: Product, second: Product) -> Iterator[ParsedInstruction]:
    for query, alike in tuple(groups_of(catalogue, first))[:2]:
        # as the family draws them: not by the noun alone
        for sort in ("price", "rating"):
            goal = pair_goal(first, second, query=query, sort=sort) if second in alike else None
            if goal is not None:
                yield ParsedInstruction("compare", goal)


def _best(catalogue: Catalogue, *, words: str, category: str) -> Iterator[ParsedInstruction]:
    for sort in ("price", "rating"):
        goal = best_goal(catalogue, words=words, category=category, sort=sort)
        if goal is not None:
            yield ParsedInstruction("find_product", goal)


def _about_opening(text: str, start: StartPage) -> Iterator[ParsedInstruction]:
    """Goals about the visitor's state on arrival: lines of the cart, orders."""
    catalogue, opening = start
    for line in opening.cart:
        for phrase in cart.line_phrases(catalogue, opening.cart, line):
            if phrase in text:
                goal = cart.line_goal(catalogue, line, phrase)
                yield ParsedInstruction("remove_from_cart", goal)
                for quantity in range(1, MAX_QUANTITY + 1):
                    yield ParsedInstruction("change_quantity", {**goal, "quantity": quantity})
    for order in opening.orders:
        for phrase in account.order_phrases(catalogue, opening.orders, order):
            if phrase in text:
                yield from _about_order(order, phrase)


def _about_order(order: Order, phrase: str) -> Iterator[ParsedInstruction]:
    goal = {"number": order.number, "phrase": phrase}
    yield ParsedInstruction("order_status", {**goal, "answer": order.status})
    if order.status == "processing":
        yield ParsedInstruction("cancel_order", goal)
    elif order.status != "cancelled":
        yield ParsedInstruction("impossible", {"kind": "too_late", "phrase": phrase, "number": order.number})


def _moving(text: str, start: StartPage) -> Iterator[ParsedInstruction]:
    """Goals of a new address: it is not in the vocabulary, so it is read from the slots of the phrasing."""
    city = start.opening.address.city
    for in_same_city in (True, False):
        for template in phrasings("change_address", {**_SLOTS, "within": in_same_city}):
            pattern = re.escape(template)
            for name, slot in _SLOTS.items():
                pattern = pattern.replace(slot, f"(?P<{name}>.+?)", 1)
            match = re.fullmatch(pattern, text)
            if match is None:
                continue
            moved = match.groupdict()
            goal = {"street": moved["street"], "city": moved.get("city", city)}
            if (goal["city"] == city) == in_same_city and goal["street"] != start.opening.address.street:
                yield ParsedInstruction("change_address", {**goal, "within": in_same_city})


def _out_of_reach(text: str, start: StartPage) -> Iterator[ParsedInstruction]:
    """Goals that cannot be done: an unknown order, a product that does not exist."""
    for number in map(int, re.findall(r"order (\d{4})\b", text)):
        if all(order.number != number for order in start.opening.orders):
            yield ParsedInstruction(
                "impossible", {"kind": "order", "phrase": f"order {number}", "number": number}
            )
    for phrase_start in (match.end() for match in re.finditer(r"\bthe ", text)):
        words = re.findall(r"[\w-]+", text[phrase_start:])
        for length in (2, 3):
            goal = absent(start.catalogue, tokens_of(" ".join(words[:length])))
            if goal is not None:
                yield ParsedInstruction("impossible", goal)


class _Words(NamedTuple):
    """What a catalogue's instructions can mention."""

    targets: dict[str, list[ProductTarget]]
    """Targets by phrase."""
    titles: dict[str, Product]
    queries: tuple[str, ...]
    """Queries that denote a group of similar products."""


@lru_cache(maxsize=4)
def _index(catalogue: Catalogue) -> _Words:
    targets: dict[str, list[ProductTarget]] = {}
    queries: dict[str, None] = {}
    for product in catalogue.products:
        for target in targets_of(catalogue, product):
            targets.setdefault(target.phrase, []).append(target)
        queries |= {query: None for query, _ in groups_of(catalogue, product)}
    return _Words(targets, {product.title: product for product in catalogue.products}, tuple(queries))
