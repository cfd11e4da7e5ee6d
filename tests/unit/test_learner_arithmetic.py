"""Advantages, shares, corrections and intervals against numbers worked out by hand."""

from math import exp, log, sqrt

import numpy as np
import pytest
import torch
from factories import BOUNDS
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.rl.advantages import group_advantages, is_informative
from hindcast.core.rl.importance_weights import (
    CorrectionKind,
    TokenCorrection,
    correct,
    effective_sample_size,
)
from hindcast.core.rl.loss_normalization import (
    EpisodeTokens,
    episode_shares,
    loss_shares,
    nested_shares,
    token_shares,
)
from hindcast.core.rl.statistics import difference, wilson

pytestmark = pytest.mark.torch


def test_advantages_use_the_population_deviation_and_the_paper_s_constant() -> None:
    # mean 1/4, population variance (9/16 + 3/16) / 4 = 3/16
    deviation = sqrt(3) / 4
    expected = [0.75 / (deviation + 1e-4)] + [-0.25 / (deviation + 1e-4)] * 3
    assert group_advantages([1.0, 0.0, 0.0, 0.0]) == pytest.approx(expected, rel=1e-12)


def test_advantages_with_the_sample_deviation_and_epsilon_equal_torch_s() -> None:
    # sum of squares 3/4 over N - 1 = 3: deviation 1/2
    expected = [0.75 / (0.5 + 1e-6)] + [-0.25 / (0.5 + 1e-6)] * 3
    rewards = [1.0, 0.0, 0.0, 0.0]
    found = group_advantages(rewards, deviation="sample", epsilon=1e-6)
    assert found == pytest.approx(expected, rel=1e-12)
    scores = torch.tensor(rewards, dtype=torch.float64)
    released = (scores - scores.mean()) / (scores.std() + 1e-6)
    assert found == pytest.approx(released.tolist(), rel=1e-12)


@pytest.mark.parametrize("rewards", [[], [1.0], [0.1] * 3])
def test_a_group_that_agrees_or_has_one_member_says_nothing(rewards: list[float]) -> None:
    assert not is_informative(rewards)
    assert group_advantages(rewards) == [0.0] * len(rewards)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=16))
def test_advantages_sum_to_zero_and_follow_the_rewards(rewards: list[float]) -> None:
    advantages = group_advantages(rewards)
    assert sum(advantages) == pytest.approx(0, abs=1e-6)
    for reward, advantage in zip(rewards, advantages, strict=True):
        for other, other_advantage in zip(rewards, advantages, strict=True):
            assert reward <= other or advantage >= other_advantage


def test_nested_shares_are_the_product_of_the_three_means() -> None:
    episodes = [
        EpisodeTokens("g1", (2, 4)),
        EpisodeTokens("g1", (3,)),
        EpisodeTokens("g2", (5,)),
    ]
    # 2 groups; g1 has 2 members: 1/(2*2*2*2), 1/(2*2*2*4), 1/(2*2*1*3); g2 has 1: 1/(2*1*1*5)
    assert nested_shares(episodes) == pytest.approx([1 / 16, 1 / 32, 1 / 12, 1 / 10], rel=1e-15)


def test_token_shares_are_one_mean_over_all_tokens() -> None:
    assert token_shares([EpisodeTokens("g1", (2, 4)), EpisodeTokens("g1", (3,))]) == [1 / 9] * 3


def test_episode_shares_are_a_mean_over_episodes_of_means_over_their_tokens() -> None:
    episodes = [EpisodeTokens("g1", (2, 4)), EpisodeTokens("g1", (3,)), EpisodeTokens("g2", (5,))]
    assert loss_shares("episode", episodes) == pytest.approx([1 / 18, 1 / 18, 1 / 9, 1 / 15], rel=1e-15)


shapes = st.lists(
    st.builds(
        EpisodeTokens,
        st.sampled_from(["a", "b"]),
        st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple),
    ),
    min_size=2,
    max_size=6,
)


@given(shapes, st.integers(0, 5), st.lists(st.integers(1, 50), min_size=1, max_size=12))
def test_changing_one_episode_s_length_moves_no_other_s_nested_share(
    episodes: list[EpisodeTokens], which: int, tokens: list[int]
) -> None:
    changed = list(episodes)
    index = which % len(episodes)
    changed[index] = EpisodeTokens(episodes[index].group, tuple(tokens))

    def others(all_: list[EpisodeTokens]) -> list[float]:
        shares = iter(nested_shares(all_))
        owned = [(number, next(shares)) for number, episode in enumerate(all_) for _ in episode.tokens]
        return [share for number, share in owned if number != index]

    assert others(changed) == others(episodes)


@given(shapes)
def test_shares_of_all_tokens_sum_to_one_under_either_mean(episodes: list[EpisodeTokens]) -> None:
    counts = [tokens for episode in episodes for tokens in episode.tokens]
    for shares in (nested_shares(episodes), token_shares(episodes), episode_shares(episodes)):
        assert sum(share * count for share, count in zip(shares, counts, strict=True)) == pytest.approx(1)


def test_a_longer_episode_moves_the_shares_of_others_under_the_token_mean() -> None:
    short = token_shares([EpisodeTokens("g", (2,)), EpisodeTokens("g", (2,))])
    long = token_shares([EpisodeTokens("g", (2,)), EpisodeTokens("g", (8,))])
    assert (short[0], long[0]) == (1 / 4, 1 / 10)


def corrected(kind: CorrectionKind) -> TokenCorrection:
    """mu gives 0.5, 0.1, 0.4; pi_prox gives 0.25, 0.35, 0.4: ratios 0.5, 3.5, 1; differences 0.25, 0.25, 0."""
    return correct(
        kind,
        proximal=np.array([log(0.25), log(0.35), log(0.4)], dtype=np.float32),
        behaviour=np.array([log(0.5), log(0.1), log(0.4)], dtype=np.float32),
        ratio_cap=2.0,
        icepop_alpha=0.6,
        icepop_beta=4.0,
        mask_difference=0.2 if kind == "masked" else 0.9,
    )


@pytest.mark.parametrize(
    ("kind", "weights", "kept"),
    [
        ("none", [1, 1, 1], [True, True, True]),
        ("truncated", [0.5, 2, 1], [True, True, True]),
        ("decoupled", [0.5, 0, 1], [True, False, True]),
        ("icepop", [0, 3.5, 1], [False, True, True]),
        ("masked", [0, 0, 1], [False, False, True]),
    ],
)
def test_each_correction_weighs_tokens_as_its_paper_says(
    kind: CorrectionKind, weights: list[float], kept: list[bool]
) -> None:
    found = corrected(kind)
    assert found.weights.tolist() == pytest.approx(weights, rel=1e-6)
    assert found.kept.tolist() == kept
    assert found.ratios.tolist() == pytest.approx([0.5, 3.5, 1], rel=1e-6)


@pytest.mark.parametrize(
    ("bounds", "weights"),
    [((0.5, 5.0), [0, 0.6, 4, 0]), ((0.3, 3.0), [0.4, 0.6, 0, 0])],
)
def test_icepop_leaves_out_tokens_on_either_side_of_its_bounds(
    bounds: tuple[float, float], weights: list[float]
) -> None:
    # mu is 0.1: ratios 0.4, 0.6, 4 and 6
    found = correct(
        "icepop",
        proximal=np.log(np.array([0.04, 0.06, 0.4, 0.6])).astype(np.float32),
        behaviour=np.log(np.full(4, 0.1)).astype(np.float32),
        **BOUNDS | {"icepop_alpha": bounds[0], "icepop_beta": bounds[1]},
    )
    assert found.weights.tolist() == pytest.approx(weights, rel=1e-5)
    assert found.kept.tolist() == [weight > 0 for weight in weights]


def test_the_mask_looks_at_probabilities_and_not_at_ratios() -> None:
    tiny = correct(
        "masked",
        proximal=np.array([log(1e-3)], dtype=np.float32),
        behaviour=np.array([log(1e-6)], dtype=np.float32),
        **BOUNDS,
    )
    assert tiny.kept.tolist() == [True]


def test_the_effective_sample_size_falls_when_one_ratio_outweighs_the_rest() -> None:
    assert effective_sample_size(np.ones(7)) == 1.0
    assert effective_sample_size(np.array([1.0, 3.0])) == pytest.approx(16 / 20)
    assert effective_sample_size(np.array([exp(20), 1.0, 1.0, 1.0])) == pytest.approx(0.25, rel=1e-3)


def test_wilson_s_interval_of_known_counts() -> None:
    half = wilson(5, 10)
    assert (half.rate, half.low, half.high) == pytest.approx((0.5, 0.2365931, 0.7634069), abs=1e-6)
    none = wilson(0, 10)
    assert (none.low, none.high) == pytest.approx((0.0, 0.2775328), abs=1e-6)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    with pytest.raises(ValueError, match="5 of 3"):
        wilson(5, 3)


def test_newcombe_s_interval_of_a_difference_is_the_paper_s() -> None:
    """Newcombe 1998, table II, 56/70 - 48/80, method 10."""
    gap = difference(48, 80, 56, 70)
    assert (gap.rate, gap.low, gap.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


@given(st.integers(0, 300), st.integers(1, 300))
def test_wilson_s_interval_holds_its_rate_within_zero_and_one(successes: int, trials: int) -> None:
    interval = wilson(min(successes, trials), trials)
    assert 0 <= interval.low <= interval.rate <= interval.high <= 1
