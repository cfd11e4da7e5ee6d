"""The losses of GRPO's variants against numbers worked out by hand, and in what they equal GRPO or differ from it."""

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from factories import loss_of, terms
from numpy.typing import NDArray

from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import SettingsError
from hindcast.core.rl.advantages import group_advantages, overlong_term
from hindcast.core.rl.algorithm import find_algorithm, options_of
from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.core.settings.changes import decode_settings
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import EpisodePart, SampleTerms, Weighing
from hindcast.learner.buffer.records import Sample
from hindcast.learner.recipes import load_recipe
from stories.training_story import settings_with

pytestmark = pytest.mark.torch

VARIANTS = ("dr_grpo", "gspo", "cispo", "dapo")


def shares_of(algorithm: str, *lengths: tuple[int, ...], **options: Any) -> list[float]:
    """Shares of one token of each sample; a tuple of token counts per episode of one group."""
    learner = settings_with(algorithm=algorithm, options=options).learner
    parts = [EpisodePart(EpisodeTokens("g", tokens), succeeded=False) for tokens in lengths]
    return loss_for(learner).shares(parts)[0]


def test_dr_grpo_divides_every_episode_by_the_same_constant() -> None:
    # two episodes, C = 10: 1 / (2 * 10) per token, however long an episode is
    assert shares_of("dr_grpo", (2, 4), (8,), episode_tokens=10) == pytest.approx([1 / 20] * 3)
    # GRPO: 1/2 of two episodes, 1/2 of two steps, one over a step's tokens
    assert shares_of("grpo", (2, 4), (8,)) == pytest.approx([1 / 8, 1 / 16, 1 / 16])


def test_dr_grpo_with_equal_lengths_and_deviation_1_is_grpo() -> None:
    assert shares_of("dr_grpo", (5,), (5,), episode_tokens=5) == shares_of("grpo", (5,), (5,))
    rewards = [2.0, 0.0, 2.0, 0.0]  # their deviation is 1
    plain = group_advantages(rewards, deviation="none")
    assert plain == [1.0, -1.0, 1.0, -1.0]
    assert plain == pytest.approx(group_advantages(rewards, epsilon=1e-12))
    given = terms(advantage=1.0, behaviour=[0.2] * 3, proximal=[0.2] * 3)
    for policy in ([0.22, 0.3, 0.1], [0.2, 0.2, 0.2]):
        assert loss_of(policy, given, algorithm="dr_grpo") == loss_of(policy, given)


def test_advantages_without_a_deviation_are_distances_to_the_mean() -> None:
    assert group_advantages([1.0, 0.0, 0.0, 0.0], deviation="none") == [0.75, -0.25, -0.25, -0.25]
    assert group_advantages([1.0, 1.0], deviation="none") == [0.0, 0.0]


def test_gspo_takes_the_geometric_mean_of_a_steps_ratios() -> None:
    # ratios 1.1 and 1.21: s = 1.331^(1/2); share 1/4 of two tokens: loss -1/2 s A, gradient -1/4 s A for each token
    given = terms(advantage=2.0, behaviour=[0.1, 0.2], proximal=[0.1, 0.2], share=0.25)
    found, gradient = loss_of([0.11, 0.242], given, algorithm="gspo")
    s = 1.331**0.5
    assert float(found.loss) == pytest.approx(-0.5 * s * 2, rel=1e-5)
    assert gradient == pytest.approx([-0.25 * s * 2] * 2, rel=1e-5)
    assert (found.clipped, found.contributing) == (0, 2)


def test_gspo_clips_a_step_as_a_whole() -> None:
    # ratios 4 and 0.5: s = 2^(1/2) is above 1.3; the second token alone would not be clipped
    given = terms(advantage=1.0, behaviour=[0.1, 0.2], proximal=[0.1, 0.2])
    found, gradient = loss_of([0.4, 0.1], given, algorithm="gspo")
    assert float(found.loss) == pytest.approx(-2 * 1.3, rel=1e-5)
    assert gradient == [0.0, 0.0]
    assert (found.clipped, found.contributing) == (2, 0)
    assert loss_of([0.4, 0.1], given)[1] == pytest.approx([0.0, -0.5], rel=1e-5)


def test_gspos_gradient_is_that_of_the_papers_sequence_objective() -> None:
    proximal = [0.1, 0.2, 0.3]
    given = terms(advantage=1.5, behaviour=proximal, proximal=proximal, share=1 / 3)
    _, gradient = loss_of([0.11, 0.19, 0.31], given, algorithm="gspo")
    log_probs = torch.log(torch.tensor([0.11, 0.19, 0.31])).requires_grad_()
    ratio = torch.exp((log_probs - torch.log(torch.tensor(proximal))).mean())
    (-ratio * 1.5).backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    assert gradient == pytest.approx(log_probs.grad.tolist(), rel=1e-5)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("probability", [0.05, 0.1, 0.12, 0.4])
def test_gspo_with_answers_of_one_token_is_grpo(advantage: float, probability: float) -> None:
    given = terms(advantage=advantage, behaviour=[0.1], proximal=[0.1])
    own, gradient = loss_of([probability], given, algorithm="gspo")
    other, expected = loss_of([probability], given)
    assert float(own.loss) == pytest.approx(float(other.loss), rel=1e-6)
    assert gradient == pytest.approx(expected, rel=1e-6)


def weighed_of(given: Sequence[SampleTerms], now: Sequence[Sequence[float]]) -> list[SampleTerms]:
    """Terms of GSPO on whole episodes, as an update starts from a policy that gives these probabilities."""
    loss = loss_for(settings_with(algorithm="gspo", options={"sequence": "episode"}).learner)
    by_sample = {
        id(term.sample): np.log(np.array(own)).astype(np.float32)
        for term, own in zip(given, now, strict=True)
    }

    def current(samples: Sequence[Sample]) -> list[NDArray[np.float32]]:
        return [by_sample[id(one)] for one in samples]

    assert isinstance(loss, Weighing)
    return list(loss.weigh(given, current))


def test_gspo_on_episodes_has_one_ratio_for_all_steps_of_an_episode() -> None:
    # one episode of two steps with ratios 1.1 and 1.21, 1: s = (1.1 * 1.21)^(1/3) = 1.1; another with the ratio 2
    first = terms(advantage=1.0, behaviour=[0.1], proximal=[0.1])
    second = terms(advantage=1.0, behaviour=[0.2, 0.3], proximal=[0.2, 0.3])
    other = terms(advantage=1.0, behaviour=[0.1], proximal=[0.1])
    other = replace(other, sample=msgspec.structs.replace(other.sample, episode="other"))
    rehearsed = replace(
        terms(advantage=0.0, behaviour=[0.5], proximal=[0.5], share=0.0, cloning_share=1.0), rehearsed=True
    )
    now = [[0.11], [0.242, 0.3], [0.2], [0.5]]
    weighed = weighed_of([first, second, other, rehearsed], now)
    for term, own, ratio in zip(weighed[:3], now, [1.1, 1.1, 1.3], strict=False):
        found, gradient = loss_of(list(own), term, algorithm="gspo", options={"sequence": "episode"})
        assert found.policy == pytest.approx(-ratio * len(own), rel=1e-5)
        assert gradient == pytest.approx([-ratio * (ratio < 1.3)] * len(own), rel=1e-5)
    assert weighed[3] is rehearsed


def test_gspo_on_steps_asks_for_no_further_log_probabilities() -> None:
    given = [terms(advantage=1.0, behaviour=[0.1], proximal=[0.1])]
    loss = loss_for(settings_with(algorithm="gspo").learner)
    assert isinstance(loss, Weighing)
    assert loss.weigh(given, lambda samples: pytest.fail("asked for log-probabilities")) is given


def test_gspo_counts_each_sequence_as_one() -> None:
    assert shares_of("gspo", (2, 4), (8,)) == pytest.approx([1 / 8, 1 / 16, 1 / 16])
    assert shares_of("gspo", (2, 4), (8,), sequence="episode") == pytest.approx([1 / 12, 1 / 12, 1 / 16])


def test_cispo_weighs_log_pi_by_the_clipped_ratio() -> None:
    # ratios 1.1, 1.5 (clipped to 1.3) and 0.5 (no lower clip): loss -1/4 * 2 * sum of weight log pi
    given = terms(advantage=2.0, behaviour=[0.2] * 3, proximal=[0.2] * 3, share=0.25)
    found, gradient = loss_of([0.22, 0.3, 0.1], given, algorithm="cispo")
    expected = -0.25 * 2 * (1.1 * log(0.22) + 1.3 * log(0.3) + 0.5 * log(0.1))
    assert float(found.loss) == pytest.approx(expected, rel=1e-5)
    assert gradient == pytest.approx([-0.25 * 2 * 1.1, -0.25 * 2 * 1.3, -0.25 * 2 * 0.5], rel=1e-5)
    assert (found.clipped, found.contributing) == (1, 3)


def test_cispo_keeps_the_gradient_of_a_token_that_grpo_clips() -> None:
    given = terms(advantage=1.0, behaviour=[0.1], proximal=[0.1])
    assert loss_of([0.4], given)[1] == [0.0]
    assert loss_of([0.4], given, algorithm="cispo")[1] == pytest.approx([-1.3], rel=1e-5)


def test_cispo_within_its_bounds_has_the_gradient_of_grpo() -> None:
    given = terms(advantage=-1.0, behaviour=[0.2, 0.1], proximal=[0.2, 0.1])
    assert loss_of([0.21, 0.09], given, algorithm="cispo")[1] == pytest.approx(
        loss_of([0.21, 0.09], given)[1], rel=1e-5
    )


def test_dapo_has_one_mean_over_tokens_and_the_higher_upper_clip() -> None:
    assert shares_of("dapo", (2, 4), (8,)) == pytest.approx([1 / 14] * 3)
    options = options_of(settings_with(algorithm="dapo").learner)
    assert (options.clip_low, options.clip_high, options.group_filter) == (0.2, 0.28, True)


def test_dapo_leaves_out_episodes_that_were_cut_off_if_asked_to() -> None:
    parts = [
        EpisodePart(EpisodeTokens("g", (2, 4)), succeeded=False, truncated=True),
        EpisodePart(EpisodeTokens("g", (8,)), succeeded=True),
        EpisodePart(EpisodeTokens("h", (5,)), succeeded=True, rehearsed=True, truncated=True),
    ]
    learner = settings_with(algorithm="dapo", options={"overlong_filter": True}).learner
    shares, cloning = loss_for(learner).shares(parts)
    assert shares == [0.0, 0.0, 1 / 8, 0.0]
    assert cloning == [0.0, 0.0, 0.0, 0.5 / 5]
    assert loss_for(settings_with(algorithm="dapo").learner).shares(parts)[0] == [1 / 14] * 3 + [0.0]


@pytest.mark.parametrize(
    ("steps", "expected"),
    # of 20 steps the last 5 are the buffer: 0 up to 15, then 1/5 of the penalty for each step
    [(1, 0.0), (15, 0.0), (16, -0.1), (18, -0.3), (20, -0.5), (21, -0.5)],
)
def test_the_punishment_of_long_episodes_rises_over_the_buffer(steps: int, expected: float) -> None:
    assert overlong_term(steps, 20, buffer=0.25, penalty=0.5) == pytest.approx(expected)


@pytest.mark.parametrize("algorithm", VARIANTS)
def test_a_token_that_the_correction_leaves_out_has_no_gradient(algorithm: str) -> None:
    # pi_prox / mu: 4 is beyond the cap of 2, 1 is not
    given = terms(advantage=1.0, behaviour=[0.1, 0.2], proximal=[0.4, 0.2], correction="decoupled")
    found, gradient = loss_of([0.4, 0.2], given, algorithm=algorithm)
    assert gradient[0] == 0.0
    assert gradient[1] == pytest.approx(-1.0, rel=1e-5)
    assert found.contributing == 1


@pytest.mark.parametrize("algorithm", VARIANTS)
def test_every_variant_has_the_kl_penalty_and_rehearsal_of_grpo(algorithm: str) -> None:
    given = terms(advantage=0.0, behaviour=[0.4], proximal=[0.4], reference=[0.2], cloning_share=0.5)
    found, _ = loss_of([0.4], given, algorithm=algorithm, kl_coefficient=0.1)
    assert float(found.loss) == pytest.approx(0.1 * (0.5 - log(0.5) - 1) - 0.5 * log(0.4), rel=1e-5)


@pytest.mark.parametrize("algorithm", VARIANTS)
def test_a_group_of_one_has_nothing_to_compare(algorithm: str) -> None:
    found = find_algorithm(algorithm)
    one = decode_settings({"curriculum": {"group_size": 1}, "learner": {"algorithm": algorithm}})
    assert found.check(one) == [
        f"curriculum.group_size = 1 leaves learner.algorithm = {algorithm!r} nothing to compare: it needs at least 2"
    ]
    assert found.check(settings_with(algorithm=algorithm)) == []


@pytest.mark.parametrize("algorithm", ["grpo", *VARIANTS])
@pytest.mark.parametrize("recipe", ["mgrpo", "webagent_r1", "arpo", "laser", "combined"])
def test_recipes_of_grpo_fit_its_variants(recipe: str, algorithm: str) -> None:
    overrides = [f"learner.algorithm={algorithm}"]
    if algorithm == "gspo" and "clip_high" in load_recipe(recipe)["learner"]["options"]:
        with pytest.raises(SettingsError, match=r"set learner\.options\.clip_low=3e-4 and"):
            resolve(recipe=recipe, environment={}, overrides=overrides)
        overrides += ["learner.options.clip_low=3e-4", "learner.options.clip_high=4e-4"]
    assert resolve(recipe=recipe, environment={}, overrides=overrides).settings.learner.algorithm == algorithm


def test_an_option_of_grpo_that_a_variant_lacks_is_refused_by_name() -> None:
    chosen = ["learner.algorithm=cispo", "learner.options.dual_clip=3"]
    with pytest.raises(
        SettingsError, match=r"'cispo' has no option 'dual_clip'; there are: clip_high, cloning"
    ):
        resolve(recipe="mgrpo", environment={}, overrides=chosen)
