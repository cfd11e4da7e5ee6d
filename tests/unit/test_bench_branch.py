"""`hindcast bench branch`: the wrong step is what it is said to be, nothing mends it, and the count is right."""

from pathlib import Path

import pytest

from bench.order_form import ENVIRONMENT, PAGES, OrderForm, demonstrate, wrong_step
from bench.wrong_step import NAME, Case, Naming, measure_naming
from hindcast.actors.environments.python.world import page_of
from hindcast.actors.environments.snapshot import observe
from hindcast.app.evaluation.branches import Branches, Fall
from hindcast.core.domain.action import Action
from hindcast.core.settings.schema import Settings

BLANK = observe(page_of("", "", ()))


@pytest.mark.parametrize("seed", range(2 * PAGES))
def test_the_demonstrator_errs_once_where_the_seed_says(seed: int) -> None:
    task = ENVIRONMENT.tasks(NAME, Settings()).task("all", seed)
    form, taken, right = OrderForm(), list[Action | None](), []
    form.reset(seed)
    over, reward = False, 0.0
    while not over:
        action = demonstrate(task, "", BLANK, taken)
        assert action.element is not None
        answer = form.choices[action.element - 1]
        right.append(answer == form.wanted)
        taken.append(action)
        _, reward, over = form.step(answer)
    assert [step for step, good in enumerate(right) if not good] == [wrong_step(seed)]
    assert (len(right), reward) == (PAGES, 0.0)


def test_a_form_without_an_error_succeeds() -> None:
    form = OrderForm()
    form.reset(3)
    *_, (_, reward, over) = [form.step(form.wanted) for _ in range(PAGES)]
    assert (reward, over) == (1.0, True)


def case(*, wrong: int, named: int | None, high: float = -0.1) -> Case:
    fall = None
    if named is not None:
        fall = Fall(step=named, before=0.5, after=0.0, difference=-0.5, low=-0.7, high=high)
    branches = Branches(
        run="b", parent="p", episode="e", family="f", outcome="failure", version=0, values=(), fall=fall
    )
    return Case(episode="e", wrong_step=wrong, last_step=4, branches=branches)


def test_only_the_wrong_step_counts_as_named_right() -> None:
    naming = Naming(
        continuations=16,
        cases=[case(wrong=2, named=2), case(wrong=2, named=1, high=0.1), case(wrong=4, named=None)],
    )
    assert [one.is_right for one in naming.cases] == [True, False, False]
    assert naming.right.rate == pytest.approx(1 / 3)
    assert naming.sure == [naming.cases[0]]


@pytest.mark.broker
@pytest.mark.torch
@pytest.mark.timeout(300)
async def test_no_continuation_from_behind_the_error_succeeds(tmp_path: Path) -> None:
    naming = await measure_naming(tmp_path, episodes=1, each=2)
    (found,) = naming.cases
    assert (found.wrong_step, found.branches.outcome) == (0, "failure")
    assert [one.continuations for one in found.branches.values] == [2] * PAGES
    assert {one.successes for one in found.branches.values[1:]} == {0}
