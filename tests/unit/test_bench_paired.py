"""Student's interval over seeds covers what it says, and a bootstrap over few seeds does not."""

import numpy as np
import pytest

from bench.recipes.paired import SeedPair, points, power, ratio, seed_pair


def drawn(*, seeds: int, ratio: float, random: np.random.Generator) -> list[SeedPair]:
    """Rows whose true success varies over seeds by 4 points around .2 and `ratio` times as much; 300 tasks."""
    true = random.normal([0.2 * ratio, 0.2], 0.04, size=(seeds, 2)).clip(0.02, 0.98)
    won = random.binomial(300, true) / 300
    return [SeedPair(float(ours), float(theirs), 300) for ours, theirs in won]


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_the_interval_of_a_ratio_covers_the_truth_19_times_in_20(seeds: int) -> None:
    random = np.random.default_rng(seeds)
    found = [ratio(drawn(seeds=seeds, ratio=1.0, random=random)) for _ in range(1500)]
    covered = np.mean([one.low <= 1.0 <= one.high for one in found])
    assert covered == pytest.approx(0.95, abs=0.02)


def test_a_bootstrap_over_five_seeds_is_too_narrow() -> None:
    random = np.random.default_rng(0)
    covered = []
    for _ in range(600):
        ratios = np.array([one.log_ratio for one in drawn(seeds=5, ratio=1.0, random=random)])
        means = random.choice(ratios, size=(500, 5)).mean(axis=1)
        low, high = np.percentile(means, [2.5, 97.5])
        covered.append(low <= 0 <= high)
    assert np.mean(covered) < 0.9


def test_ratio_and_points_by_hand() -> None:
    pairs = [SeedPair(0.4, 0.2, 1_000_000), SeedPair(0.6, 0.2, 1_000_000)]
    # log ratios log 2 and log 3: mean .8959, deviation .2867, t(1) = 12.706, half-width 2.576
    assert ratio(pairs).rate == pytest.approx(6**0.5, rel=1e-4)
    assert ratio(pairs).low == pytest.approx(np.exp(0.8959 - 2.576), rel=1e-3)
    assert points(pairs).rate == pytest.approx(0.3)


def test_outcomes_are_paired_task_by_task() -> None:
    nan = float("nan")
    assert seed_pair([1, 0, nan, 1], [0, 0, 1, nan]) == SeedPair(0.5, 0.0, 2)
    assert seed_pair([nan], [1]) is None


def test_power_rises_with_seeds_and_is_the_error_rate_without_an_effect() -> None:
    few, many = (power(0.31, 0.2, seeds=seeds, tasks=300, spread=0.05) for seeds in (3, 8))
    assert few < many
    assert many > 0.8
    assert power(0.2, 0.2, seeds=5, tasks=300, spread=0.05) == pytest.approx(0.025, abs=0.015)
    assert power(0.9, 0.1, seeds=1, tasks=300, spread=0.05) == 0.0
