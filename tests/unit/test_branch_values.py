"""Where continuations say that an episode went wrong."""

import pytest

from hindcast.app.cli.branch import fall_in_words
from hindcast.app.evaluation.branches import Branches, StepValue, largest_fall


def values(*successes: int, each: int = 16) -> list[StepValue]:
    return [
        StepValue(
            step=step,
            answer="",
            url="",
            continuations=each,
            successes=won,
            value=won / each if each else 0.0,
            low=0.0,
            high=1.0,
            lost={},
        )
        for step, won in enumerate(successes)
    ]


def test_the_step_after_which_success_is_lowest_against_before_lost_it() -> None:
    fall = largest_fall(values(12, 13, 2, 1), steps=4, verdict="failure")
    assert fall is not None
    assert (fall.step, fall.before, fall.after) == (1, 13 / 16, 2 / 16)
    assert fall.is_sure


def test_after_the_last_step_the_verdict_is_known() -> None:
    fall = largest_fall(values(12, 12, 12), steps=3, verdict="failure")
    assert fall is not None
    assert (fall.step, fall.after) == (2, 0.0)
    assert fall.is_sure
    assert largest_fall(values(12, 12, 12), steps=3, verdict="success") is None
    assert largest_fall(values(12, 12, 12), steps=3, verdict="undecided") is None


def test_steps_that_are_not_neighbours_say_nothing_about_one_step() -> None:
    first, _, last = values(16, 16, 0)
    assert largest_fall([first, last], steps=9, verdict="failure") is None
    assert largest_fall(values(5, 0, each=0), steps=9, verdict="failure") is None


@pytest.mark.parametrize(
    ("successes", "says"),
    [((9, 7), "may be chance"), ((16, 0), "Step 0 lost it"), ((0, 16), "No step lowers")],
)
def test_a_small_fall_is_not_called_the_wrong_step(successes: tuple[int, int], says: str) -> None:
    found = values(*successes)
    told = Branches(
        run="b",
        parent="p",
        episode="e",
        family="f",
        outcome="failure",
        version=0,
        values=tuple(found),
        fall=largest_fall(found, steps=9, verdict="failure"),
    )
    assert says in fall_in_words(told)
