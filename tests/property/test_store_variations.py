"""Goals near goals: each can be reached, is judged by the rules, and follows from its draw alone."""

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hindcast.actors.environments.base import GoalSpace
from hindcast.actors.environments.store.evaluators import evaluate
from hindcast.actors.environments.store.families import FAMILIES
from hindcast.actors.environments.store.goals.variations import CHANGES, NEIGHBOURS
from hindcast.actors.environments.store.goals.visits import StartPage, ending_of
from hindcast.actors.environments.store.session import VisitRecord, opening_state
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import SiteSettings
from stories.store_visitor import demonstrate, running_store

SETTINGS = SiteSettings(products=60)
TASKS = StoreTasks(SETTINGS)
FAMILY = st.sampled_from(sorted(FAMILIES))
DRAW = st.integers(0, 2**32)


def varied(family: str, seed: int, draw: int, families: tuple[str, ...] = TASKS.families()) -> Task | None:
    variant = TASKS.vary(TASKS.task(family, seed), families=families, random=Random(draw))
    return None if variant is None else variant.task


def proof(task: Task) -> Evidence:
    """What the shortest visit that does the task leaves."""
    goal = {name: value for name, value in task.goal.items() if name != "catalogue"}
    opening = opening_state(TASKS.catalogue, task.family, task.seed)
    ending = ending_of(task.family, goal, StartPage(TASKS.catalogue, opening))
    record = VisitRecord(
        catalogue=TASKS.catalogue.name,
        products=SETTINGS.products,
        catalogue_seed=SETTINGS.catalogue_seed,
        family=task.family,
        seed=task.seed,
        opening=opening,
        journal=ending.journal,
        state=ending.state,
    )
    return Evidence(answer=ending.answer, final_url="/", probes=msgspec.to_builtins(record))


def test_every_family_has_a_visit_and_neighbours_that_exist() -> None:
    assert set(NEIGHBOURS) == set(FAMILIES)
    assert {name for names in NEIGHBOURS.values() for name in names} <= set(FAMILIES)
    assert isinstance(TASKS, GoalSpace)


@given(family=FAMILY, seed=st.integers(0, 500))
@settings(max_examples=120, deadline=None)
def test_what_the_families_draw_can_be_reached(family: str, seed: int) -> None:
    task = TASKS.task(family, seed)
    assert TASKS.why_unreachable(task) == ""
    assert evaluate(task, proof(task)).reward == 1


@given(family=FAMILY, seed=st.integers(0, 500), draw=DRAW)
@settings(max_examples=250, deadline=None)
def test_a_variation_is_another_task_that_can_be_reached_and_its_evaluator_accepts_the_proof(
    family: str, seed: int, draw: int
) -> None:
    parent, task = TASKS.task(family, seed), varied(family, seed, draw)
    assert task is not None
    assert task.id != parent.id
    assert (task.family, task.goal) != (parent.family, parent.goal)
    assert task.seed == parent.seed
    assert task.instruction
    assert TASKS.why_unreachable(task) == ""
    assert evaluate(task, proof(task)).reward == 1
    assert varied(family, seed, draw) == task, "it follows from its draw"
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(task), type=Task)
    assert (again, again.id) == (task, task.id), "the fact alone is the task"


@given(family=FAMILY, seed=st.integers(0, 100), draw=DRAW, others=st.sets(FAMILY, max_size=2))
@settings(max_examples=80, deadline=None)
def test_only_families_of_the_run_are_asked_for(family: str, seed: int, draw: int, others: set[str]) -> None:
    task = varied(family, seed, draw, families=(family, *sorted(others)))
    assert task is None or task.family in {family, *others}


def test_every_change_is_made_of_some_goal() -> None:
    found = {
        variant.change
        for family in TASKS.families()
        for draw in range(12)
        if (variant := TASKS.vary(TASKS.task(family, draw), families=TASKS.families(), random=Random(draw)))
    }
    assert found == set(CHANGES)


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with running_store(SETTINGS) as base_url:
        yield base_url


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_demonstrator_does_what_was_varied_in_the_real_shop(store: str, family: str) -> None:
    for draw in range(4):
        task = varied(family, draw, draw)
        assert task is not None
        evidence, actions, _ = demonstrate(store, task)
        judgment = evaluate(task, evidence)
        assert judgment.reward == 1, (task.instruction, judgment.reason, actions)


def broken(family: str, **changes: Any) -> str:
    """Why a task of the family is refused once its goal says something else."""
    for seed in range(200):
        task = TASKS.task(family, seed)
        if all(task.goal.get(name) for name in changes):
            return TASKS.why_unreachable(msgspec.structs.replace(task, goal={**task.goal, **changes}))
    raise AssertionError("no such goal")


@pytest.mark.parametrize(
    ("family", "changes", "why"),
    [
        ("find_price", {"answer": "$1.23"}, "not true"),
        ("find_price", {"product": 4711}, "no product 4711"),
        ("find_price", {"phrase": "the lamp"}, "not true of what it asks for, or not of that alone"),
        ("find_price", {"catalogue": "another"}, "about catalogue another"),
        ("find_product", {"answer": "Norda slim oak spaceship"}, "no product is called"),
        ("compare", {"titles": ["a b c d", "e f g h"]}, "no product is called"),
        ("buy", {"colour": "mauve"}, "has no colour 'mauve'"),
        ("add_to_cart", {"size": "giant"}, "has no size 'giant'"),
        ("add_to_cart", {"quantity": 6}, "6 pieces cannot be chosen"),
        ("write_review", {"stars": 9}, "1 to 5 stars"),
        ("remove_from_cart", {"product": 1}, "the cart holds no"),
        ("order_status", {"answer": "lost"}, "not true"),
        ("order_status", {"number": 1}, "no order 1"),
        ("change_address", {"city": " "}, "a street and a city"),
    ],
)
def test_what_nobody_could_do_is_refused_with_the_reason(
    family: str, changes: dict[str, Any], why: str
) -> None:
    assert why in broken(family, **changes)


def test_an_order_on_its_way_cannot_be_cancelled_and_a_goal_of_another_family_is_none_of_this_one() -> None:
    asked = TASKS.task("cancel_order", 3)
    opening = opening_state(TASKS.catalogue, "cancel_order", 3)
    shipped = next(order for order in opening.orders if order.status != "processing")
    goal = {**asked.goal, "number": shipped.number, "phrase": f"order {shipped.number}"}
    assert "too late to cancel" in TASKS.why_unreachable(msgspec.structs.replace(asked, goal=goal))
    assert "is not one of buy" in TASKS.why_unreachable(msgspec.structs.replace(asked, family="buy"))
    assert "no family" in TASKS.why_unreachable(msgspec.structs.replace(asked, family="steal"))
