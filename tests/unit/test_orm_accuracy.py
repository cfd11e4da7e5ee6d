"""Confusion tables: numbers by hand, and what no answer that is always the same can reach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.rl.statistics import (
    Confusion,
    balanced_accuracy,
    majority_baseline,
    of_failures,
    of_successes,
    plain_accuracy,
    wilson,
)

COUNTS = st.integers(0, 200)


def test_a_table_is_counted_by_hand() -> None:
    told = [(True, True)] * 30 + [(True, False)] * 10 + [(False, False)] * 54 + [(False, True)] * 6
    table = Confusion()
    for success, said in told:
        table = table.with_one(success=success, verdict=said)
    assert (table.hits, table.misses, table.rejections, table.false_alarms) == (30, 10, 54, 6)
    assert of_successes(table).rate == pytest.approx(0.75)
    assert of_failures(table).rate == pytest.approx(0.9)
    assert plain_accuracy(table).rate == pytest.approx(0.84)
    assert majority_baseline(table) == pytest.approx(0.6)
    balanced = balanced_accuracy(table)
    assert balanced is not None
    assert balanced.rate == pytest.approx(0.825)
    one, other = wilson(30, 40), wilson(54, 60)
    assert balanced.low == pytest.approx(0.825 - ((0.75 - one.low) ** 2 + (0.9 - other.low) ** 2) ** 0.5 / 2)
    assert balanced.high == pytest.approx(
        0.825 + ((one.high - 0.75) ** 2 + (other.high - 0.9) ** 2) ** 0.5 / 2
    )


@given(successes=st.integers(1, 200), failures=st.integers(1, 200), said=st.booleans())
def test_the_same_answer_always_is_worth_one_half_whatever_is_common(
    successes: int, failures: int, said: bool
) -> None:
    table = Confusion(
        hits=successes * said,
        misses=successes * (not said),
        false_alarms=failures * said,
        rejections=failures * (not said),
    )
    balanced = balanced_accuracy(table)
    assert balanced is not None
    assert balanced.rate == 0.5
    assert plain_accuracy(table).rate <= majority_baseline(table)


@given(hits=COUNTS, misses=COUNTS, rejections=COUNTS, false_alarms=COUNTS)
def test_the_interval_holds_the_rate_and_ignores_how_common_an_outcome_is(
    hits: int, misses: int, rejections: int, false_alarms: int
) -> None:
    table = Confusion(hits=hits, misses=misses, rejections=rejections, false_alarms=false_alarms)
    balanced = balanced_accuracy(table)
    if not table.successes or not table.failures:
        assert balanced is None
        return
    assert balanced is not None
    assert -1e-12 <= balanced.low <= balanced.rate <= balanced.high <= 1 + 1e-12
    swapped = Confusion(hits=rejections, misses=false_alarms, rejections=hits, false_alarms=misses)
    again = balanced_accuracy(swapped)
    assert again is not None
    assert again.rate == pytest.approx(balanced.rate)
