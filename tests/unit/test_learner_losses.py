"""The losses of M-GRPO and cloning against numbers worked out by hand, and what they must not depend on."""

from math import exp, log

import pytest
from factories import loss_of, terms

from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import EpisodePart
from stories.training_story import settings_with

pytestmark = pytest.mark.torch


def test_the_clipped_surrogate_by_hand() -> None:
    # ratios 1.1 (inside), 1.5 (clipped to 1.3), 0.5 (advantage positive: not clipped from below)
    given = terms(advantage=2.0, behaviour=[0.2] * 3, proximal=[0.2] * 3, share=0.25)
    found, gradient = loss_of([0.22, 0.3, 0.1], given)
    assert float(found.loss) == pytest.approx(-0.25 * 2 * (1.1 + 1.3 + 0.5), rel=1e-5)
    assert gradient == pytest.approx([-0.25 * 2 * 1.1, 0.0, -0.25 * 2 * 0.5], rel=1e-5)
    assert (found.clipped, found.contributing) == (1, 2)


def test_a_negative_advantage_is_clipped_from_below_only() -> None:
    given = terms(advantage=-1.0, behaviour=[0.2] * 2, proximal=[0.2] * 2)
    found, gradient = loss_of([0.3, 0.1], given)  # ratios 1.5 and 0.5; the second is clipped to 0.8
    assert float(found.loss) == pytest.approx(1.5 + 0.8, rel=1e-5)
    assert gradient == pytest.approx([1.5, 0.0], rel=1e-5)


def test_the_ratio_is_to_the_proximal_policy_and_the_correction_to_the_behaviour_policy() -> None:
    given = terms(advantage=1.0, behaviour=[0.1], proximal=[0.15], correction="truncated")
    found, gradient = loss_of([0.165], given)  # rho 1.1, weight 1.5, reported ratio 1.65
    assert float(found.loss) == pytest.approx(-1.5 * 1.1, rel=1e-5)
    assert gradient == pytest.approx([-1.5 * 1.1], rel=1e-5)
    assert found.ratio == pytest.approx(1.65, rel=1e-5)


def test_a_token_the_correction_leaves_out_has_no_policy_gradient_but_stays_anchored() -> None:
    given = terms(advantage=1.0, behaviour=[0.1], proximal=[0.35], reference=[0.35], correction="decoupled")
    # ratio 3.5 is beyond the cap; KL is at its minimum
    found, gradient = loss_of([0.35], given, kl_coefficient=0.5)
    assert (float(found.loss), gradient, found.contributing) == (0.0, [0.0], 0)
    moved, moved_gradient = loss_of([0.2], given, kl_coefficient=0.5)
    ratio = 0.35 / 0.2
    assert float(moved.loss) == pytest.approx(0.5 * (ratio - log(ratio) - 1), rel=1e-5)
    assert moved_gradient == pytest.approx([0.5 * (1 - ratio)], rel=1e-5)


def test_the_kl_term_is_the_k3_estimate() -> None:
    given = terms(advantage=0.0, behaviour=[0.4], proximal=[0.4], reference=[0.2], share=2.0)
    found, _ = loss_of([0.4], given, kl_coefficient=0.1)
    k3 = 0.5 - log(0.5) - 1
    assert found.kl == pytest.approx(k3, rel=1e-5)
    assert float(found.loss) == pytest.approx(2.0 * 0.1 * k3, rel=1e-5)


def test_the_cloning_term_adds_cross_entropy_on_successes() -> None:
    given = terms(advantage=0.0, behaviour=[0.5] * 2, proximal=[0.5] * 2, cloning_share=0.25)
    found, gradient = loss_of([0.5, 0.5], given)
    assert float(found.loss) == pytest.approx(0.25 * 2 * log(2), rel=1e-5)
    assert gradient == pytest.approx([-0.25, -0.25])


def parts() -> list[EpisodePart]:
    return [
        EpisodePart(EpisodeTokens("g", (2, 4)), succeeded=True),
        EpisodePart(EpisodeTokens("g", (3,)), succeeded=False),
        EpisodePart(EpisodeTokens("h", (1,)), succeeded=True),
    ]


def test_the_cloning_term_is_a_mean_over_the_successful_episodes_alone() -> None:
    _, cloning = loss_for(settings_with(cloning_coefficient=0.5).learner).shares(parts())
    # successes: one of group g, one of group h: 1/(2*1*2*2), 1/(2*1*2*4), 1/(2*1*1*1)
    assert cloning == pytest.approx([0.5 / 8, 0.5 / 16, 0.0, 0.5 / 2])
    assert loss_for(settings_with().learner).shares(parts())[1] == [0.0] * 4


def test_cloning_gives_every_step_the_same_share_or_every_token() -> None:
    steps, _ = loss_for(settings_with(algorithm="cloning").learner).shares(parts())
    assert steps == pytest.approx([1 / 8, 1 / 16, 1 / 12, 1 / 4])
    tokens, _ = loss_for(settings_with(algorithm="cloning", loss_mean="token").learner).shares(parts())
    assert tokens == pytest.approx([1 / 10] * 4)


def test_cloning_is_cross_entropy() -> None:
    given = terms(advantage=1.0, behaviour=[0.5] * 2, proximal=[0.5] * 2, share=0.5)
    found, gradient = loss_of([0.25, exp(-3)], given, algorithm="cloning")
    assert float(found.loss) == pytest.approx(0.5 * (log(4) + 3), rel=1e-5)
    assert gradient == pytest.approx([-0.5, -0.5])


def test_the_upper_clip_may_lie_further_out_than_the_lower() -> None:
    # settings of `loss_of`: .2 below, .3 above; ratios 1.25 and 1.35, then .85 and .75
    up, gradient = loss_of([0.5, 0.54], terms(advantage=1.0, behaviour=[0.4, 0.4], proximal=[0.4, 0.4]))
    assert up.policy == pytest.approx(-(1.25 + 1.3))
    assert gradient == pytest.approx([-1.25, 0.0])
    down, gradient = loss_of([0.34, 0.3], terms(advantage=-1.0, behaviour=[0.4, 0.4], proximal=[0.4, 0.4]))
    assert down.policy == pytest.approx(0.85 + 0.8)
    assert gradient == pytest.approx([0.85, 0.0])


def test_dual_clip_bounds_what_one_token_of_a_failure_weighs() -> None:
    given = terms(advantage=-2.0, behaviour=[0.1, 0.1], proximal=[0.1, 0.1])
    # ratios 2 and 5: without it both count whole, with c = 3 the second counts 3 and has no gradient
    plain, gradient = loss_of([0.2, 0.5], given)
    assert plain.policy == pytest.approx(2 * (2 + 5))
    assert gradient == pytest.approx([4.0, 10.0])
    bounded, gradient = loss_of([0.2, 0.5], given, dual_clip=3)
    assert bounded.policy == pytest.approx(2 * (2 + 3))
    assert gradient == pytest.approx([4.0, 0.0])
    assert (plain.clipped, bounded.clipped) == (0, 1)


def test_dual_clip_leaves_successes_alone() -> None:
    given = terms(advantage=1.0, behaviour=[0.1, 0.1], proximal=[0.1, 0.1])
    for policy in ([0.05, 0.9], [0.1, 0.12]):
        assert loss_of(policy, given)[1] == loss_of(policy, given, dual_clip=3)[1]
