"""Advantages from values, and the replay window, against numbers worked out by hand and properties of the rules."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.rl.values import (
    blended_advantages,
    clamped_advantages,
    in_window,
    perplexity,
    progress_weights,
    released_advantages,
    surprising,
)

values = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_the_papers_advantage_by_hand() -> None:
    # values .5, .6, .9 of an episode that succeeded, lambda .5, gamma .9
    found = blended_advantages([0.5, 0.6, 0.9], 1.0, blend=0.5, discount=0.9)
    assert found == pytest.approx(
        [
            0.5 * (0.9 * 0.6 - 0.5) + 0.5 * (0.81 - 0.5),
            0.5 * (0.9 * 0.9 - 0.6) + 0.5 * (0.9 - 0.6),
            0.5 * (1.0 - 0.9) + 0.5 * (1.0 - 0.9),
        ]
    )
    failed = blended_advantages([0.5, 0.6], 0.0, blend=0.25, discount=1.0)
    assert failed == pytest.approx([0.25 * 0.1 - 0.75 * 0.5, -0.6])


@given(values, st.floats(0, 1))
def test_without_discount_and_blend_one_the_papers_advantages_sum_to_what_the_first_state_did_not_promise(
    given_values: list[float], reward: float
) -> None:
    found = blended_advantages(given_values, reward, blend=1.0, discount=1.0)
    assert sum(found) == pytest.approx(reward - given_values[0], abs=1e-9)


@given(st.integers(1, 12), st.floats(0, 1), st.floats(0, 1))
def test_a_critic_that_knows_the_outcome_leaves_no_advantage(steps: int, reward: float, blend: float) -> None:
    assert blended_advantages([reward] * steps, reward, blend=blend, discount=1.0) == pytest.approx(
        [0.0] * steps
    )


def test_a_discount_makes_the_early_steps_of_a_long_success_look_bad() -> None:
    found = blended_advantages([0.9] * 10, 1.0, blend=0.5, discount=0.9)
    assert found[0] < 0 < found[-1]


def test_the_released_advantage_by_hand() -> None:
    # a failure whose value rises by .2, then falls: margin .05, nothing returned
    assert clamped_advantages([0.3, 0.5], [0.0, 0.0], discount=0.9) == pytest.approx([0.15, -0.55])
    assert released_advantages([0.3, 0.5], 0.0, discount=0.9) == [1.0, -0.6]
    # a half-success of two steps, R repeated at each: .5 + (.5 + .9 * .5), and .5 + .5
    assert clamped_advantages([0.9, 0.1], [0.5, 0.5], discount=0.9) == pytest.approx(
        [0.1 - 0.9 - 0.05 + 0.5 + 0.95, 0.0 - 0.1 - 0.05 + 0.5 + 0.5]
    )


@given(values, st.floats(0, 1))
def test_a_success_gives_plus_one_for_every_step_as_released(
    given_values: list[float], discount: float
) -> None:
    assert released_advantages(given_values, 1.0, discount=discount) == [1.0] * len(given_values)


@given(values, st.floats(0, 1))
def test_as_released_an_advantage_is_plus_one_or_minus_six_tenths(
    given_values: list[float], discount: float
) -> None:
    assert set(released_advantages(given_values, 0.0, discount=discount)) <= {1.0, -0.6}


def test_digirl_keeps_the_steps_that_make_progress() -> None:
    # a failure: only the step that gains more than the margin; a success: also what comes before its end
    assert progress_weights([0.3, 0.34, 0.5, 0.5], 0.0, discount=0.9) == [0.0, 1.0, 0.0, 0.0]
    assert progress_weights([0.5, 0.5], 1.0, discount=0.9) == [1.0, 1.0]
    # a success too far off to outweigh a fall in value: .9^1 = .9 against 1 - .05
    assert progress_weights([1.0, 0.0], 0.5, discount=0.9) == [0.0, 1.0]


def test_digirl_keeps_the_episodes_that_surprise_most() -> None:
    gains = [index / 10 for index in range(11)]
    assert surprising(gains, share=0.1) == [gain >= 0.9 for gain in gains]
    # between two of them the cut is interpolated: quantile .75 of 0, 1, 2 is 1.5
    assert surprising([0.0, 1.0, 2.0], share=0.25) == [False, False, True]
    assert surprising([0.3] * 4, share=0.1) == [True] * 4
    assert surprising([-0.5], share=0.1) == [True]


def test_a_perplexity_is_the_inverse_of_the_geometric_mean_of_probabilities() -> None:
    assert perplexity([log(0.5), log(0.125)]) == pytest.approx(4.0)
    assert perplexity([0.0]) == 1.0


@pytest.mark.parametrize(
    ("sureness", "closed", "open_"),
    [(0.49, False, False), (0.5, True, False), (0.51, True, True), (0.95, True, True), (0.96, False, False)],
)
def test_the_borders_of_the_replay_window(sureness: float, closed: bool, open_: bool) -> None:
    for lowest_is_in, expected in ((True, closed), (False, open_)):
        found = in_window(1 / sureness, lowest=0.5, highest=0.95, lowest_is_in=lowest_is_in)
        assert found is expected
