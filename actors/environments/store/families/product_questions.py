"""Families that ask about one product: its price, its rating, one of its features."""

from collections.abc import Iterator, Sequence
from random import Random

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, Product
from hindcast.actors.environments.store.families.answers import at_the_end, check_number, check_words
from hindcast.actors.environments.store.families.base import (
    CheckResult,
    Goal,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
)
from hindcast.actors.environments.store.families.targets import draw_target, reach, targets_of
from hindcast.actors.environments.store.families.view import PageView, answer, click
from hindcast.actors.environments.store.session import VisitorState
from hindcast.core.domain.action import Action


def _draw_price(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    target = draw_target(catalogue, random)
    return {**target.goal(), "answer": target.product.price}


def say_price(goal: Goal, random: Random) -> str:
    """An instruction that asks for a price."""
    return random.choice(
        (
            "What is the price of {}?",
            "How much does {} cost?",
            "Find the price of {}.",
            "Tell me what I would pay for {}.",
        )
    ).format(goal["phrase"])


def _check_number(goal: Goal, ending: VisitEnd) -> CheckResult:
    return check_number(ending.answer, goal["answer"])


def _act_price(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    return reach(view, goal) or _read(view, r"Price (\$[\d.]+)")


def _read(view: PageView, pattern: str) -> Action:
    found = view.find(pattern)
    return Action(name="Scroll Down") if found is None else answer(found)


def _shown(ending: VisitEnd) -> Iterator[Product]:
    for product in ending.shown():
        yield ending.catalogue[product]


def _reached_price(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for product in _shown(ending):
        if check_number(ending.answer, product.price).success:
            for target in targets_of(ending.catalogue, product):
                yield ReachedGoal({**target.goal(), "answer": product.price}, at_the_end(ending))


def _draw_rating(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    target = draw_target(catalogue, random)
    return {**target.goal(), "answer": target.product.rating}


def _say_rating(goal: Goal, random: Random) -> str:
    return random.choice(
        (
            "How many stars does {} have?",
            "What is the rating of {}?",
            "Find the rating of {}.",
            "How well is {} rated?",
        )
    ).format(goal["phrase"])


def _act_rating(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    return reach(view, goal) or _read(view, r"Rating ([\d.]+) stars")


def _reached_rating(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for product in _shown(ending):
        if check_number(ending.answer, product.rating).success:
            for target in targets_of(ending.catalogue, product):
                yield ReachedGoal({**target.goal(), "answer": product.rating}, at_the_end(ending))


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
    return _read(view, rf"{goal['feature']}: (.+)")


def _reached_feature(ending: VisitEnd) -> Iterator[ReachedGoal]:
    for product in map(ending.catalogue.__getitem__, ending.opened("features")):
        for feature, value in product.features.items():
            if check_words(ending.answer, value, vocabulary.FEATURES[feature]).success:
                for target in targets_of(ending.catalogue, product):
                    yield ReachedGoal(
                        {**target.goal(), "feature": feature, "answer": value}, at_the_end(ending)
                    )


FIND_PRICE = StoreFamily(
    name="find_price",
    max_steps=8,
    draw=_draw_price,
    say=say_price,
    check=_check_number,
    act=_act_price,
    reached=_reached_price,
)
FIND_RATING = StoreFamily(
    name="find_rating",
    max_steps=8,
    draw=_draw_rating,
    say=_say_rating,
    check=_check_number,
    act=_act_rating,
    reached=_reached_rating,
)
FIND_FEATURE = StoreFamily(
    name="find_feature",
    max_steps=9,
    draw=_draw_feature,
    say=_say_feature,
    check=_check_feature,
    act=_act_feature,
    reached=_reached_feature,
)
