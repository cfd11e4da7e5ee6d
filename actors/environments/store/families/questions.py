"""Families that ask a question: find_price, find_rating, find_feature, compare, find_product."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from random import Random

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.actors.environments.store.families.base import (
    CheckResult,
    Goal,
    PageView,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
    answer,
    at_the_end,
    check_number,
    check_words,
    click,
    first,
    phrased,
)
from hindcast.actors.environments.store.families.targets import (
    best_rated,
    cheapest,
    draw_target,
    groups_of,
    reach,
    search_for,
    targets_of,
)
from hindcast.actors.environments.store.pages import SORT_LABELS
from hindcast.actors.environments.store.session import VisitorState
from hindcast.core.domain.action import Action


def _answer_from_page(view: PageView, pattern: str) -> Action:
    answer_text = view.find(pattern)
    return Action(name="Scroll Down") if answer_text is None else answer(answer_text)


def _number_question(
    name: str, *, attribute: str, pattern: str, say: Callable[[Goal, Random], str]
) -> StoreFamily:
    """A family that asks for a number on a product's page. `attribute` is that of the product, `pattern` that of the page."""

    def draw(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
        target = draw_target(catalogue, random)
        return {**target.goal(), "answer": getattr(target.product, attribute)}

    def check(goal: Goal, ending: VisitEnd) -> CheckResult:
        return check_number(ending.answer, goal["answer"])

    def act(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
        return reach(view, goal) or _answer_from_page(view, pattern)

    def reached(ending: VisitEnd) -> Iterator[ReachedGoal]:
        for product in map(ending.catalogue.__getitem__, ending.products_shown()):
            number = getattr(product, attribute)
            if check_number(ending.answer, number).success:
                for target in targets_of(ending.catalogue, product):
                    yield ReachedGoal({**target.goal(), "answer": number}, at_the_end(ending))

    return StoreFamily(name=name, max_steps=8, draw=draw, say=say, check=check, act=act, reached=reached)


say_price = phrased(
    "What is the price of {phrase}?",
    "How much does {phrase} cost?",
    "Find the price of {phrase}.",
    "Tell me what I would pay for {phrase}.",
)
"""An instruction that asks for a price."""
_say_rating = phrased(
    "How many stars does {phrase} have?",
    "What is the rating of {phrase}?",
    "Find the rating of {phrase}.",
    "How well is {phrase} rated?",
)


def _draw_feature(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    target = draw_target(catalogue, random)
    feature = random.choice(tuple(vocabulary.FEATURES))
    return {**target.goal(), "feature": feature, "answer": target.product.features[feature]}


def _say_feature(goal: Goal, random: Random) -> str:
    templates: dict[str, tuple[str, ...]] = {
        "Weight": ("What is the weight of {}?", "How heavy is {}?", "Find the weight of {}."),
        "Warranty": (
            "What is the warranty of {}?",
            "How long is the warranty of {}?",
            "Find the warranty of {}.",
        ),
        "Origin": (
            "What is the origin of {}?",
            "Which country does {} come from?",
            "Find the origin of {}.",
        ),
        "Care": ("What care does {} need?", "How should I clean {}?", "Find the care of {}."),
    }
    return random.choice(templates[goal["feature"]]).format(goal["phrase"])


def _check_feature(goal: Goal, ending: VisitEnd) -> CheckResult:
    return check_words(ending.answer, goal["answer"], vocabulary.FEATURES[goal["feature"]])


def _act_feature(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    action = reach(view, goal)
    if action is not None:
        return action
    if not view.path.endswith("/features"):
        return click(view.exactly("Features") or view.exactly("Back to product"))
    return _answer_from_page(view, rf"{goal['feature']}: (.+)")


def _reached_feature(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for product in map(ending.catalogue.__getitem__, ending.opened("features")):
        for feature, value in product.features.items():
            if check_words(ending.answer, value, vocabulary.FEATURES[feature]).success:
                for target in targets_of(ending.catalogue, product):
                    yield ReachedGoal(
                        {**target.goal(), "feature": feature, "answer": value}, at_the_end(ending)
                    )


def pair_goal(one: Product, other: Product, *, query: str, sort: str) -> Goal | None:
    """A goal to choose the cheaper or better rated of two; None when they are equal in that."""
    one, other = sorted((one, other), key=lambda product: product.id)
    winner = cheapest((one, other)) if sort == "price" else best_rated((one, other))
    if winner is None:
        return None
    return {"titles": [one.title, other.title], "query": query, "sort": sort, "answer": winner.title}


def _draw_compare(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    def attempts() -> Iterator[Goal | None]:
        while True:
            product = random.choice(catalogue.products)
            query, alike = random.choice(tuple(groups_of(catalogue, product))[:2])
            others = [candidate for candidate in alike if candidate.id != product.id]
            sort = random.choice(("price", "rating"))
            yield pair_goal(product, random.choice(others), query=query, sort=sort) if others else None

    return first(attempts(), family="compare")


def _say_compare(goal: Goal, random: Random) -> str:
    one, other = random.sample(goal["titles"], 2)
    word = "cheaper" if goal["sort"] == "price" else "better rated"
    return random.choice(
        (
            "Which is {word}, the {one} or the {other}?",
            "Compare the {one} with the {other}. Which one is {word}?",
            "Tell me which of these is {word}: {one} or {other}.",
        )
    ).format(word=word, one=one, other=other)


def _check_compare(goal: Goal, ending: VisitEnd) -> CheckResult:
    return check_words(ending.answer, goal["answer"], goal["titles"])


def _act_compare(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    action = search_for(view, goal["query"], goal["sort"])
    if action is not None:
        return action
    visible_titles = [node.text for node in view.nodes if node.text in goal["titles"]]
    return answer(visible_titles[0]) if visible_titles else click(view.exactly("Next page"))


def _reached_compare(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for _, fact in ending.facts("listed"):
        products = [ending.catalogue[number] for number in fact.shown]
        for one, other in combinations(products, 2):
            if one.noun != other.noun:
                continue
            shared = [
                *([f"{one.material} {one.noun}"] if one.material == other.material else []),
                *([f"{one.brand} {one.noun}"] if one.brand == other.brand else []),
            ]
            for query in shared:
                for sort in ("price", "rating"):
                    goal = pair_goal(one, other, query=query, sort=sort)
                    if goal is not None and _check_compare(goal, ending).success:
                        yield ReachedGoal(goal, at_the_end(ending))


def _superlative(products: tuple[Product, ...], sort: str) -> Product | None:
    return cheapest(products) if sort == "price" else best_rated(products)


def best_goal(catalogue: Catalogue, *, words: str, category: str, sort: str) -> Goal | None:
    """A goal to name the cheapest or best rated of a group or a category; None when there is a tie."""
    if category:
        alike = tuple(product for product in catalogue.products if product.category == category)
    else:
        *brand_or_material, noun = words.split()
        word = brand_or_material[0] if brand_or_material else ""
        alike = tuple(p for p in catalogue.matching(noun=noun) if word in ("", p.brand, p.material))
    winner = _superlative(alike, sort)
    if winner is None:
        return None
    return {"query": words, "category": category, "sort": sort, "answer": winner.title}


def _draw_best(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    def attempts() -> Iterator[Goal | None]:
        while True:
            sort = random.choice(("price", "rating"))
            if random.random() < 0.25:
                category = random.choice(tuple(catalogue.categories))
                yield best_goal(catalogue, words="", category=category, sort=sort)
            else:
                words, _ = random.choice(tuple(groups_of(catalogue, random.choice(catalogue.products))))
                yield best_goal(catalogue, words=words, category="", sort=sort)

    return first(attempts(), family="find_product")


def _say_best(goal: Goal, random: Random) -> str:
    word = "cheapest" if goal["sort"] == "price" else "best rated"
    if goal["category"]:
        templates: tuple[str, ...] = (
            "What is the {word} product in {what}?",
            "Go to {what} and tell me the {word} product.",
            "Name the {word} product of the category {what}.",
        )
    else:
        templates = (
            "Which {what} is the {word}?",
            "What is the {word} {what} called?",
            "Name the {word} {what}.",
            "Find the {word} {what} and tell me its name.",
        )
    return random.choice(templates).format(word=word, what=goal["category"] or goal["query"])


def _check_best(goal: Goal, ending: VisitEnd) -> CheckResult:
    noun = goal["answer"].split()[-1]
    others = {product.title for product in ending.catalogue.matching(noun=noun)}
    return check_words(ending.answer, goal["answer"], others)


def _act_best(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if goal["category"]:
        if view.path != f"/category/{goal['category'].lower()}":
            return click(view.exactly(goal["category"]) or view.exactly("Store"))
        if view.query_parameter("sort") != goal["sort"]:
            return click(
                view.exactly(next(label for sort, label in SORT_LABELS.items() if sort == goal["sort"]))
            )
    else:
        action = search_for(view, goal["query"], goal["sort"])
        if action is not None:
            return action
    # The first product below the sort order of the list; above it are only the shop's own links.
    visible_titles = [node.text for node in view.nodes if node.kind == "link" and len(node.text.split()) == 4]
    return answer(visible_titles[0]) if visible_titles else Action(name="Scroll Down")


def _reached_best(ending: VisitEnd) -> Iterator[ReachedGoal]:
    listed = {number: None for _, fact in ending.facts("listed") for number in fact.shown}
    for product in map(ending.catalogue.__getitem__, listed):
        if not check_words(ending.answer, product.title, ()).success:
            continue
        groups = [(words, "") for words, _ in groups_of(ending.catalogue, product)] + [("", product.category)]
        for words, category in groups:
            for sort in ("price", "rating"):
                goal = best_goal(ending.catalogue, words=words, category=category, sort=sort)
                if goal is not None and _check_best(goal, ending).success:
                    yield ReachedGoal(goal, at_the_end(ending))


FAMILIES = (
    _number_question("find_price", attribute="price", pattern=r"Price (\$[\d.]+)", say=say_price),
    _number_question("find_rating", attribute="rating", pattern=r"Rating ([\d.]+) stars", say=_say_rating),
    StoreFamily(
        name="find_feature",
        max_steps=9,
        draw=_draw_feature,
        say=_say_feature,
        check=_check_feature,
        act=_act_feature,
        reached=_reached_feature,
    ),
    StoreFamily(
        name="find_product",
        max_steps=8,
        draw=_draw_best,
        say=_say_best,
        check=_check_best,
        act=_act_best,
        reached=_reached_best,
    ),
    StoreFamily(
        name="compare",
        max_steps=8,
        draw=_draw_compare,
        say=_say_compare,
        check=_check_compare,
        act=_act_compare,
        reached=_reached_compare,
    ),
)
"""Families of this module, in a stable order."""
