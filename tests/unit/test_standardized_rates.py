"""Success over task families in fixed shares: what it is, how sure it is, and that no change of shares moves it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.app.cli.output import weighted_rate
from hindcast.core.rl.statistics import difference, gap, standardized, wilson
from hindcast.storage.readmodel.outcome_counts import Tally, curve

counts = st.integers(0, 30).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials)))


def test_a_rate_is_each_familys_rate_by_its_share_of_the_standard() -> None:
    standard = {"easy": (36, 40), "hard": (4, 120)}
    found = standardized({"easy": (5, 10), "hard": (1, 10)}, standard)
    assert found.rate == pytest.approx(0.25 * 0.5 + 0.75 * 0.1)
    easy, hard = wilson(5, 10), wilson(1, 10)
    assert found.low == pytest.approx(
        0.2 - ((0.25 * (0.5 - easy.low)) ** 2 + (0.75 * (0.1 - hard.low)) ** 2) ** 0.5
    )
    assert found.high == pytest.approx(
        0.2 + ((0.25 * (easy.high - 0.5)) ** 2 + (0.75 * (hard.high - 0.1)) ** 2) ** 0.5
    )


def test_a_family_that_was_not_played_has_the_standards_rate_and_says_nothing() -> None:
    found = standardized({"easy": (10, 10)}, {"easy": (20, 20), "hard": (5, 20)})
    assert found.rate == pytest.approx(0.5 * 1.0 + 0.5 * 0.25)
    assert found.high - found.low > 0.5, "nobody knows how it would have done"


@given(counts)
def test_of_one_family_it_is_the_wilson_interval(counted: tuple[int, int]) -> None:
    found, known = standardized({"a": counted}, {"a": (3, 9)}), wilson(*counted)
    assert (found.rate, found.low, found.high) == pytest.approx((known.rate, known.low, known.high))


@given(st.dictionaries(st.sampled_from("abcd"), counts), st.dictionaries(st.sampled_from("abcd"), counts))
def test_an_interval_is_within_0_and_1_and_holds_its_rate(
    strata: dict[str, tuple[int, int]], other: dict[str, tuple[int, int]]
) -> None:
    standard = {
        name: (strata.get(name, (0, 0))[0] + other.get(name, (0, 0))[0],
               strata.get(name, (0, 0))[1] + other.get(name, (0, 0))[1])
        for name in strata.keys() | other.keys()
    }  # fmt: skip
    found = standardized(strata, standard)
    assert -1e-12 <= found.low <= found.rate + 1e-12
    assert found.rate <= found.high + 1e-12 <= 1 + 2e-12


def test_the_interval_holds_the_true_rate_as_often_as_it_says() -> None:
    rates, trials, standard = (0.95, 0.5, 0.05), (8, 20, 12), {"0": (0, 10), "1": (0, 30), "2": (0, 60)}
    truth = sum(rate * standard[str(i)][1] for i, rate in enumerate(rates)) / 100
    source = random.Random(7)
    hits = 0
    for _ in range(2000):
        drawn = {
            str(i): (sum(source.random() < rate for _ in range(n)), n)
            for i, (rate, n) in enumerate(zip(rates, trials, strict=True))
        }
        found = standardized(drawn, standard)
        hits += found.low <= truth <= found.high
    assert 0.93 <= hits / 2000 <= 0.995


@given(counts, counts)
def test_the_gap_of_two_wilson_intervals_is_newcombes(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert gap(wilson(*one), wilson(*other)) == difference(*one, *other)


def played(version: int, family: str, success: int, failure: int) -> Tally:
    return Tally(version, "online", "store", family, success, failure, 0, float(success), 0)


def test_the_curve_is_flat_where_only_the_shares_of_families_change() -> None:
    counted = [
        played(0, "easy", 9, 1), played(0, "hard", 3, 27), played(1, "easy", 27, 3), played(1, "hard", 1, 9),
    ]  # fmt: skip
    first, second = curve(counted)
    assert (first.success.rate, second.success.rate) == (0.3, 0.7)
    assert first.weighted.rate == pytest.approx(second.weighted.rate) == pytest.approx(0.5)
    shown = weighted_rate(first.weighted, first.success)
    assert shown is not None
    assert shown.startswith("50% [")
    assert shown.endswith("n=40")
