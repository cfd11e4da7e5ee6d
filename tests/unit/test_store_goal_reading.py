"""Instructions of the store read back into goals: every family's own, and nothing that no task would say."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.actors.environments.store.families import FAMILIES
from hindcast.actors.environments.store.goals.instruction_parser import MAX_TEXT, goal_said, phrasings
from hindcast.actors.environments.store.goals.visits import StartPage
from hindcast.actors.environments.store.hindsight import goal_key
from hindcast.actors.environments.store.session import opening_state
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.settings.schema import SiteSettings

TASKS = StoreTasks(SiteSettings(products=60))
SEEDS = range(20)


def place_of(family: str, seed: int) -> StartPage:
    return StartPage(TASKS.catalogue, opening_state(TASKS.catalogue, family, seed))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_a_task_says_is_read_as_what_it_asks_for(family: str) -> None:
    for seed in SEEDS:
        task = TASKS.task(family, seed)
        said = goal_said(f" {task.instruction}\n", place_of(family, seed))
        assert said is not None, task.instruction
        assert said.family == family
        assert goal_key(family, said.goal) == goal_key(family, task.goal)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_goal_has_several_phrasings_and_its_own_text_is_one_of_them(family: str) -> None:
    task = TASKS.task(family, 3)
    goal = {key: value for key, value in task.goal.items() if key != "catalogue"}
    found = list(phrasings(family, goal))
    assert task.instruction in found
    assert len(set(found)) == len(found) > 1


def test_a_slip_in_a_name_asks_for_nothing() -> None:
    task = TASKS.task("buy", 1)
    for wrong in (
        task.instruction[:-1],
        f"{task.instruction} Now.",
        task.instruction.replace("the ", "teh ", 1),
    ):
        assert goal_said(wrong, place_of("buy", 1)) is None


def test_a_cart_that_holds_nothing_of_the_name_is_not_spoken_of() -> None:
    task = TASKS.task("change_quantity", 2)
    empty = place_of("buy", 2)
    assert not empty.opening.cart
    assert goal_said(task.instruction, empty) is None


INSTRUCTIONS = [TASKS.task(family, seed).instruction for family in FAMILIES for seed in range(3)]


@given(
    st.lists(st.sampled_from(INSTRUCTIONS), min_size=1, max_size=3),
    st.integers(0, 60),
    st.text("a .", max_size=9),
)
def test_no_text_is_read_as_a_goal_that_would_not_be_said_so(
    parts: Sequence[str], cut: int, rest: str
) -> None:
    text = " ".join(parts)[cut:] + rest
    said = goal_said(text, place_of("change_quantity", 5))
    assert said is None or text.strip() in phrasings(said.family, said.goal)


def test_a_text_beyond_all_measure_is_not_looked_at() -> None:
    assert goal_said(f"Buy the {'oak ' * MAX_TEXT}lamp.", place_of("buy", 1)) is None
