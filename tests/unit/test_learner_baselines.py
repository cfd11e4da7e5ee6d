"""DPO, self-imitation and filtered cloning: losses against numbers worked out by hand, and which episodes are taken."""

from math import exp, log
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import sample, terms

from fakes.bare_step import bare_step
from fakes.tiny_policy import write_tiny_policy
from hindcast.core.domain.arrays import pack_ids
from hindcast.core.models.policy import load_policy
from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import EpisodePart, SampleTerms
from hindcast.learner.algorithms.dpo import Dpo
from hindcast.learner.algorithms.filtered_bc import best_of
from hindcast.learner.buffer.records import Episode, Sample
from hindcast.learner.forward_passes import forward_passes
from stories.training_story import settings_with

pytestmark = pytest.mark.torch

BETA = 0.5


def dpo() -> Dpo:
    return Dpo(settings_with(algorithm="dpo", dpo_beta=BETA).learner)


def paired(episode: str, sign: float, reference: list[float], *, share: float = 1.0) -> SampleTerms:
    """One step of one side of a pair; probabilities under the reference."""
    made = terms(advantage=sign, behaviour=reference, proximal=reference, reference=reference, share=share)
    own = Sample(
        **{name: getattr(made.sample, name) for name in Sample.__struct_fields__} | {"episode": episode}
    )
    return SampleTerms(**{name: getattr(made, name) for name in SampleTerms.__slots__} | {"sample": own})


def logs(*probabilities: float) -> np.ndarray:
    return np.log(np.array(probabilities)).astype(np.float32)


def test_the_coefficient_of_a_pair_by_hand() -> None:
    # log pi/ref: preferred log 2 + log 1.5 over its two steps, the other log .5; m = .5 log(2 * 1.5 / .5) = log sqrt 6
    given = [paired("w", 1.0, [0.2]), paired("w", 1.0, [0.4]), paired("l", -1.0, [0.6])]
    now = {1: [logs(0.4), logs(0.6), logs(0.3)]}
    weighed = dpo().weigh(given, lambda _: now[1])
    coefficient = BETA / (1 + 6**0.5)
    assert [term.advantage for term in weighed] == pytest.approx([coefficient, coefficient, -coefficient])
    assert [term.constant for term in weighed] == pytest.approx([log(1 + 6**-0.5), 0.0, 0.0])


def test_each_pair_has_its_own_margin_and_the_mean_is_over_pairs() -> None:
    algorithm = dpo()
    part = EpisodePart(EpisodeTokens("g", (1, 1)), succeeded=True)
    shares, cloning = algorithm.shares([part, part, part, part])
    assert (shares, cloning) == ([0.5] * 8, [0.0] * 8)
    same = paired("w", 1.0, [0.5], share=0.5)
    given = [same, paired("a", -1.0, [0.5], share=0.5), same, paired("b", -1.0, [0.5], share=0.5)]
    weighed = algorithm.weigh(given, lambda _: [logs(0.5), logs(0.5), logs(0.5), logs(0.25)])
    assert weighed[0].advantage == -weighed[1].advantage == pytest.approx(BETA / 2)
    assert weighed[2].advantage == -weighed[3].advantage == pytest.approx(BETA / (1 + exp(BETA * log(2))))
    assert sum(term.constant for term in weighed) == pytest.approx(
        0.5 * (log(2) + log(1 + exp(-BETA * log(2))))
    )


@pytest.mark.parametrize("margin", [-800.0, -3.0, 0.0, 800.0])
def test_margins_of_any_size_have_a_finite_coefficient_between_0_and_beta(margin: float) -> None:
    given = [paired("w", 1.0, [1.0]), paired("l", -1.0, [1.0])]
    apart = np.array([margin / BETA], dtype=np.float32)
    weighed = dpo().weigh(given, lambda _: [apart, np.zeros(1, dtype=np.float32)])
    assert 0 <= weighed[0].advantage <= BETA
    assert weighed[0].constant == pytest.approx(max(-margin, 0.0) + log(1 + exp(-abs(margin))))


def test_value_and_gradient_are_those_of_the_formula_itself(tmp_path: Path) -> None:
    policy = load_policy(write_tiny_policy(tmp_path)).model
    steps = {"w": [([11, 12, 13], [20, 21]), ([14, 15], [22, 23, 24])], "l": [([30, 31], [25])]}
    samples = [
        Sample(
            position=1,
            digest=b"",
            episode=episode,
            prompt_ids=pack_ids(prompt),
            action_ids=pack_ids(action),
            logprobs=b"",
            versions=b"",
            temperature=1.0,
        )
        for episode, own in steps.items()
        for prompt, action in own
    ]
    reference = [logs(*[0.004 + 0.001 * at] * one.tokens) for at, one in enumerate(samples)]

    def log_probs(wanted: list[Sample]) -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for shared in forward_passes(wanted, tokens_per_forward=64):
            found |= dict(zip(shared.indices, shared.log_probs(policy), strict=True))
        return [found[index] for index in range(len(wanted))]

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        policy.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.cat([one.grad.flatten() for one in policy.parameters() if one.grad is not None])

    rises = [
        values.sum() - float(one.sum()) for values, one in zip(log_probs(samples), reference, strict=True)
    ]
    direct = -torch.nn.functional.logsigmoid(BETA * (rises[0] + rises[1] - rises[2]))
    expected = gradient(direct)

    algorithm = dpo()
    given = [
        paired(one.episode, 1.0 if one.episode == "w" else -1.0, np.exp(own).tolist())
        for one, own in zip(samples, reference, strict=True)
    ]
    with torch.no_grad():
        now = [values.numpy() for values in log_probs(samples)]
    weighed = algorithm.weigh(given, lambda _: now)
    losses = [
        algorithm.sample_loss(values, term).loss
        for values, term in zip(log_probs(samples), weighed, strict=True)
    ]
    whole = torch.stack(losses).sum()
    assert float(whole.detach()) == pytest.approx(float(direct.detach()), rel=1e-5)
    # the two add the same numbers up in another order: float32 keeps seven digits of the largest
    largest = float(expected.abs().max())
    assert largest > 0
    torch.testing.assert_close(gradient(whole), expected, rtol=0, atol=1e-5 * largest)


def test_self_imitation_by_hand() -> None:
    algorithm = loss_for(settings_with(algorithm="self_imitation").learner)
    log_probs = torch.log(torch.tensor([0.25, 0.5])).requires_grad_()
    found = algorithm.sample_loss(
        log_probs, terms(advantage=0.75, behaviour=[1.0, 1.0], proximal=[1.0, 1.0], share=0.1)
    )
    found.loss.backward()  # type: ignore[no-untyped-call]
    assert float(found.loss.detach()) == pytest.approx(0.1 * 0.75 * log(8), rel=1e-6)
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == pytest.approx([-0.075, -0.075])
    assert found.cloning == pytest.approx(0.1 * 0.75 * log(8), rel=1e-6)


def ended(name: str, reward: float, steps: int, at: int) -> Episode:
    return Episode(
        id=name,
        origin="online",
        family="store/find",
        task="t",
        group="g",
        member=0,
        attempt=0,
        requested=1,
        samples=[sample(1)],
        steps=steps,
        ended=True,
        outcome="success" if reward > 0 else "failure",
        reward=reward,
        judged=at,
    )


def test_the_best_are_successes_from_the_percentile_up_the_shortest_first() -> None:
    settings = settings_with(filter_percentile=70.0, filter_discount=0.9).learner
    window = [ended(f"e{at}", float(at % 2), 1 + at // 2, at) for at in range(10)]
    # returns: five failures 0, successes .9^0 … .9^4; the 7th smallest of 10 is that of e7, the third longest
    assert [one.id for one in best_of(window, settings)] == ["e1", "e3", "e5", "e7"]
    assert [one.id for one in best_of(window[:4], settings)] == ["e1", "e3"][
        : len(best_of(window[:4], settings))
    ]
    rare = [ended(f"f{at}", float(at == 4), 2, at) for at in range(10)]
    assert [one.id for one in best_of(rare, settings)] == ["f4"]
    assert best_of([one for one in rare if one.reward == 0], settings) == []


def test_a_failure_with_a_part_of_the_reward_is_never_imitated() -> None:
    settings = settings_with(filter_percentile=70.0).learner
    window = [ended("long", 1.0, 30, 1), *(ended(f"f{at}", 0.0, 1, at) for at in range(2, 5))]
    window[1].reward = 0.9
    assert [one.id for one in best_of(window, settings)] == ["long"]


def test_bare_steps_have_no_thought() -> None:
    assert bare_step("e", 0, observe_ms=1.0, generate_ms=1.0, act_ms=1.0).answer_from == 0
