"""Quality of predicted probabilities: rank AUC and calibration error, by hand and by their definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.rl.statistics import calibration_error, rank_auc

SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=12)


def test_the_auc_by_hand() -> None:
    # six pairs: .9 beats all three failures; .4 beats .1, ties with .4 and loses to .7
    assert rank_auc([0.9, 0.4], [0.1, 0.4, 0.7]) == pytest.approx((3 + 1 + 0.5) / 6)


@pytest.mark.parametrize(("successes", "failures"), [([], [0.3]), ([0.3], []), ([], [])])
def test_without_both_kinds_there_is_no_auc(successes: list[float], failures: list[float]) -> None:
    assert rank_auc(successes, failures) is None


@given(SCORES, SCORES)
def test_the_auc_is_the_share_of_ordered_pairs_and_its_complement_after_exchange(
    successes: list[float], failures: list[float]
) -> None:
    pairs = [(one > other) + (one == other) / 2 for one in successes for other in failures]
    found = rank_auc(successes, failures)
    assert found == pytest.approx(sum(pairs) / len(pairs))
    assert rank_auc(failures, successes) == pytest.approx(1 - (found or 0))
    assert rank_auc([0.5] * len(successes), [0.5] * len(failures)) == 0.5


def test_the_calibration_error_by_hand() -> None:
    # bin [.1, .2): predictions .12 and .18, outcomes 0 and 1: |.15 - .5| * 2/4
    # bin [.9, 1]: predictions .9 and 1, outcomes 1 and 1: |.95 - 1| * 2/4
    found = calibration_error([0.12, 1.0, 0.18, 0.9], [0.0, 1.0, 1.0, 1.0])
    assert found == pytest.approx(0.35 / 2 + 0.05 / 2)
    assert calibration_error([], []) == 0


@given(SCORES, st.integers(1, 20))
def test_a_prediction_of_the_outcome_is_calibrated_and_no_error_is_above_one(
    predicted: list[float], bins: int
) -> None:
    assert calibration_error(predicted, predicted, bins=bins) == 0
    wrong = calibration_error(predicted, [1.0 - round(one) for one in predicted], bins=bins)
    assert 0 <= wrong <= 1
