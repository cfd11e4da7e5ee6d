"""Families that change something at a product: wish_list, write_review."""

from collections.abc import Iterator, Sequence
from random import Random

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, stars_text
from hindcast.actors.environments.store.families.base import (
    CheckResult,
    Goal,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
    first,
)
from hindcast.actors.environments.store.families.targets import draw_target, reach, targets_of
from hindcast.actors.environments.store.families.view import DONE, PageView, click, fill
from hindcast.actors.environments.store.session import VisitorState
from hindcast.core.domain.action import Action

MAX_QUOTED = 80
"""Longest review in an instruction."""


def _draw_wish(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    def attempts() -> Iterator[Goal | None]:
        while True:
            target = draw_target(catalogue, random)
            yield None if target.product.id in opening.wishes else target.goal()

    return first(attempts(), family="wish_list")


def _say_wish(goal: Goal, random: Random) -> str:
    return random.choice(
        (
            "Add {} to my wish list.",
            "Put {} on my wish list.",
            "Save {} to the wish list for later.",
            "I might want {} one day. Keep it on my wish list.",
        )
    ).format(goal["phrase"])


def _check_wish(goal: Goal, ending: VisitEnd) -> CheckResult:
    wanted = {*ending.opening.wishes, goal["product"]}
    return CheckResult(
        set(ending.state.wishes) == wanted, f"the wish list should have gained only {goal['title']}"
    )


def _act_wish(goal: Goal, view: PageView, earlier: Sequence[Action]) -> Action:
    if view.path == "/wishes" and view.exactly(goal["title"]) is not None:
        return DONE
    return reach(view, goal) or click(view.exactly("Add to wish list") or view.exactly("Back to product"))


def _reached_wish(ending: VisitEnd) -> Iterator[ReachedGoal]:
    before = set(ending.opening.wishes)
    for ordinal, _ in ending.facts("wished", "unwished"):
        now = set(ending.states[ordinal].wishes)
        if before < now and len(now) == len(before) + 1:
            for target in targets_of(ending.catalogue, ending.catalogue[(now - before).pop()]):
                yield ReachedGoal(target.goal(), ordinal)


def _draw_review(catalogue: Catalogue, opening: VisitorState, random: Random) -> Goal:
    target = draw_target(catalogue, random)
    return {**target.goal(), "stars": random.randint(1, 5), "text": random.choice(vocabulary.REVIEWS)}


def _say_review(goal: Goal, random: Random) -> str:
    return random.choice(
        (
            'Write a review of {phrase}: {stars}, "{text}".',
            'Give {phrase} {stars} and write "{text}".',
            'Review {phrase} with {stars} and the words "{text}".',
        )
    ).format(phrase=goal["phrase"], stars=stars_text(goal["stars"]), text=goal["text"])


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


WISH_LIST = StoreFamily(
    name="wish_list",
    max_steps=9,
    draw=_draw_wish,
    say=_say_wish,
    check=_check_wish,
    act=_act_wish,
    reached=_reached_wish,
)
WRITE_REVIEW = StoreFamily(
    name="write_review",
    max_steps=13,
    draw=_draw_review,
    say=_say_review,
    check=_check_review,
    act=_act_review,
    reached=_reached_review,
)
