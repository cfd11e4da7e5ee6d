"""The losses over whole actions (WebRL, REINFORCE, AWR, DigiRL) against numbers worked out by hand, and their shares."""

from collections.abc import Sequence
from math import exp, log
from typing import Any

import pytest
from factories import loss_of, terms
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import EpisodePart, Valuing
from stories.training_story import settings_with

pytestmark = pytest.mark.torch

WEBRL = {"algorithm": "webrl", "beta": 0.5}
RELEASED = {"algorithm": "webrl", "loss": "released"}
chances = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4)


def of_step(advantage: float, reference: Sequence[float] | None = None, *, tokens: int = 2) -> Any:
    """One step, which has a quarter of the loss; its tokens were sampled with a probability of one half each."""
    old = list(reference or [0.5] * tokens)
    return terms(
        advantage=advantage,
        behaviour=[0.5] * len(old),
        proximal=[0.5] * len(old),
        reference=old,
        share=0.25 / len(old),
    )


def test_webrls_loss_is_the_squared_error_of_the_whole_actions_log_ratio() -> None:
    # log ratio of the action: log(.5/.25) + log(.8/.5); A = .7, beta .5
    ratio = log(2) + log(1.6)
    found, gradient = loss_of([0.5, 0.8], of_step(0.7, [0.25, 0.5]), **WEBRL)
    assert float(found.loss) == pytest.approx(0.25 * (0.5 * ratio - 0.7) ** 2, rel=1e-5)
    assert gradient == pytest.approx([0.25 * 2 * 0.5 * (0.5 * ratio - 0.7)] * 2, rel=1e-5)


@given(st.floats(-1, 1), st.floats(0.05, 5))
def test_webrls_loss_is_at_rest_where_the_policy_has_moved_by_a_over_beta(
    advantage: float, beta: float
) -> None:
    low = -abs(advantage) / beta - 0.1
    reference = exp(low)
    found, gradient = loss_of(
        [reference * exp(advantage / beta)], of_step(advantage, [reference]), algorithm="webrl", beta=beta
    )
    assert float(found.loss) == pytest.approx(0, abs=1e-6)
    assert gradient == pytest.approx([0.0], abs=1e-3)


def test_at_the_reference_webrls_gradient_is_that_of_reinforce_times_twice_beta() -> None:
    given_ = of_step(0.8)
    _, constrained = loss_of([0.5, 0.5], given_, **WEBRL)
    _, plain = loss_of([0.5, 0.5], given_, algorithm="reinforce")
    assert constrained == pytest.approx([2 * 0.5 * one for one in plain])


def test_the_released_loss_by_hand() -> None:
    # the reference was not confident (.5): beta 1; r = (log(.6/.5) + log(.7/.5)) / 2
    r = (log(1.2) + log(1.4)) / 2
    found, gradient = loss_of([0.6, 0.7], of_step(1.0), **RELEASED)
    assert float(found.loss) == pytest.approx(0.25 * 0.5 * (r - 1) ** 2, rel=1e-5)
    assert gradient == pytest.approx([0.25 * (r - 1) / 2] * 2, rel=1e-5)


def test_the_released_loss_of_a_step_worth_nothing_is_nothing() -> None:
    found, gradient = loss_of([0.6, 0.7], of_step(0.0), **RELEASED)
    assert float(found.loss) == 0
    assert gradient == [0.0, 0.0]


def test_the_released_loss_holds_a_confident_reference_faster() -> None:
    # geometric mean of .9 and .9 is above .8: beta 5, so long as 5 r is below A
    r = log(0.95 / 0.9)
    found, gradient = loss_of([0.95, 0.95], of_step(1.0, [0.9, 0.9]), **RELEASED)
    assert float(found.loss) == pytest.approx(0.25 * 0.5 * (5 * r - 1) ** 2 / 5, rel=1e-4)
    assert gradient == pytest.approx([0.25 * (5 * r - 1) / 2] * 2, rel=1e-4)
    below, _ = loss_of([0.8, 0.8], of_step(1.0, [0.79, 0.79]), **RELEASED)
    assert float(below.loss) == pytest.approx(0.25 * 0.5 * (log(0.8 / 0.79) - 1) ** 2, rel=1e-4)


@given(chances)
def test_as_released_only_good_steps_count(policy: list[float]) -> None:
    found, gradient = loss_of(policy, of_step(-0.6, tokens=len(policy)), **RELEASED)
    assert (float(found.loss), found.contributing) == (0.0, 0)
    assert gradient == [0.0] * len(policy)


def test_as_released_a_step_that_has_got_as_far_as_its_advantage_rests() -> None:
    # r = log 4 > 1 = A: beta is cut to A/r, and the error is nothing
    found, gradient = loss_of([0.8, 0.8], of_step(1.0, [0.2, 0.2]), **RELEASED)
    assert float(found.loss) == pytest.approx(0, abs=1e-6)
    assert gradient == pytest.approx([0.0, 0.0], abs=1e-6)


def test_awr_weighs_by_the_exponential_of_the_advantage() -> None:
    found, gradient = loss_of([0.5, 0.25], of_step(0.6), algorithm="awr", beta=0.3)
    assert float(found.loss) == pytest.approx(0.25 * exp(2) * (log(2) + log(4)), rel=1e-5)
    assert gradient == pytest.approx([-0.25 * exp(2)] * 2, rel=1e-5)
    _, bounded = loss_of([0.5], of_step(1.0, tokens=1), algorithm="awr", beta=0.01)
    assert bounded == pytest.approx([-0.25 * 20])


def test_reinforce_is_the_advantage_times_the_actions_log_probability() -> None:
    found, gradient = loss_of([0.5, 0.25], of_step(-0.6), algorithm="reinforce")
    assert float(found.loss) == pytest.approx(-0.25 * 0.6 * (log(2) + log(4)), rel=1e-5)
    assert gradient == pytest.approx([0.25 * 0.6] * 2)


@pytest.mark.parametrize("algorithm", ["webrl", "reinforce", "awr", "digirl"])
def test_every_step_that_is_trained_on_counts_alike(algorithm: str) -> None:
    episodes = [
        EpisodePart(EpisodeTokens("g", (2, 4)), succeeded=True),
        EpisodePart(EpisodeTokens("h", (3, 5, 1)), succeeded=True, kept=bytes([0, 1, 0])),
    ]
    shares, cloning = loss_for(settings_with(algorithm=algorithm, phase_episodes=1).learner).shares(episodes)
    assert shares == pytest.approx([1 / 6, 1 / 12, 0, 1 / 15, 0])
    assert cloning == [0.0] * 5


def planned(name: str, reward: float, samples: int) -> PlannedEpisode:
    return PlannedEpisode(episode=name, group=name, reward=reward, advantage=0.0, samples=samples)


def advantages(
    settings: LearnerSettings, episodes: list[PlannedEpisode], values: list[list[float]]
) -> list[list[float]]:
    loss = loss_for(settings)
    assert isinstance(loss, Valuing)
    return loss.step_advantages(episodes, values)


def test_digirl_keeps_steps_with_progress_of_the_episodes_that_surprise() -> None:
    episodes = [planned("a", 1.0, 2), planned("b", 0.0, 2), planned("c", 1.0, 1), planned("a", 1.0, 2)]
    values = [[0.2, 0.9], [0.1, 0.9], [0.9], [0.2, 0.9]]
    settings = settings_with(algorithm="digirl", episode_share=0.3, discount=0.9).learner
    # gains .8, -.1, .1: the top 30 % is a alone, each time that it stands in the batch
    assert advantages(settings, episodes, values) == [
        [1.0, 1.0],
        [0.0, 0.0],
        [0.0],
        [1.0, 1.0],
    ]


def test_the_setting_chooses_between_the_papers_advantage_and_the_released_one() -> None:
    episodes, values = [planned("a", 1.0, 2)], [[0.5, 0.8]]
    paper = settings_with(algorithm="webrl").learner
    assert advantages(paper, episodes, values) == [pytest.approx([0.5 * 0.3 + 0.5 * 0.5, 0.2])]
    released = settings_with(algorithm="webrl", advantage="released").learner
    assert advantages(released, episodes, values) == [[1.0, 1.0]]
