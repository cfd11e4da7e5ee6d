"""Admission under any history: never more than allowed, and never a run that waits for itself.

The learner's side is the real buffer, sweep and plan, so that what it waits for is what it would wait for.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stories.random_curriculum import SHAPES, Chance


@given(shape=SHAPES, seed=st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_limits_hold_and_at_rest_something_is_always_requested(shape: dict[str, object], seed: int) -> None:
    chance = Chance(shape, seed)
    for _ in range(4):
        for _ in range(chance.random.randint(1, 120)):
            chance.move()
            chance.check_limits()
        chance.come_to_rest()
        assert chance.story.wanted(), "nothing runs, nothing can be trained, and nothing is requested"


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_run_in_which_no_group_teaches_anything_goes_on_requesting(rate: float) -> None:
    shape = {
        "group_size": 4,
        "max_running": 8,
        "group_batch": 2,
        "max_staleness": 0,
        "max_attempts": 2,
        "algorithm": "grpo",
        "demonstrations": 0,
    }
    chance = Chance(shape, seed=5)
    chance.rate, chance.loss = rate, 0.0
    for _ in range(30):
        facts = chance.story.request()
        assert facts
        chance.running += [fact.episode for fact in facts]
        chance.come_to_rest()
    assert chance.story.state.version == 0
