"""The critic's network: what it begins with, what it reads, and that cross-entropy teaches it outcomes."""

from pathlib import Path

import pytest
import torch

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.models.auxiliary import (
    Critic,
    CriticForm,
    load_critic,
    outcome_losses,
    values_of,
)
from hindcast.core.models.policy import load_policy, save_weights

pytestmark = pytest.mark.torch

PROMPTS = [[10, 11, 12], [13, 14, 15, 16, 17], [20]]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("critic") / "policy")


def critic_of(policy: Path, form: CriticForm) -> Critic:
    return Critic(load_policy(policy).model, form, seed=3).eval()


def values(critic: Critic, prompts: list[list[int]]) -> list[float]:
    with torch.no_grad():
        return values_of(critic(prompts))


def test_before_its_first_update_every_state_is_worth_one_half(policy: Path) -> None:
    assert values(critic_of(policy, "scalar"), PROMPTS) == pytest.approx([0.5] * 3, abs=1e-6)


def test_two_heads_begin_apart_and_the_lower_one_counts(policy: Path) -> None:
    critic = critic_of(policy, "double")
    with torch.no_grad():
        log_probs = critic(PROMPTS)
    assert log_probs.shape == (3, 2, 2)
    assert torch.exp(log_probs).sum(-1).flatten().tolist() == pytest.approx([1.0] * 6)
    first, second = torch.exp(log_probs[:, 0, 1]).tolist(), torch.exp(log_probs[:, 1, 1]).tolist()
    assert first != second
    assert values_of(log_probs) == pytest.approx([min(pair) for pair in zip(first, second, strict=True)])


@pytest.mark.parametrize("form", ["scalar", "double"])
def test_a_value_depends_on_its_own_prompt_alone(policy: Path, form: CriticForm) -> None:
    critic = critic_of(policy, form)
    with torch.no_grad():
        critic.head.weight.normal_(generator=torch.Generator().manual_seed(1))
    together = values(critic, PROMPTS)
    alone = [values(critic, [prompt])[0] for prompt in PROMPTS]
    assert together == pytest.approx(alone, abs=1e-5)
    assert len({round(value, 4) for value in together}) == 3
    changed = [*PROMPTS[0][:-1], 40]
    assert values(critic, [changed]) != pytest.approx(alone[:1], abs=1e-6)


def test_the_loss_is_cross_entropy_summed_over_the_heads() -> None:
    probabilities = torch.tensor([[[0.2, 0.8], [0.5, 0.5]], [[0.9, 0.1], [0.6, 0.4]]])
    found = outcome_losses(torch.log(probabilities), torch.tensor([1.0, 0.25]))
    expected = -torch.log(probabilities)
    by_hand = [
        expected[0, 0, 1] + expected[0, 1, 1],
        0.75 * (expected[1, 0, 0] + expected[1, 1, 0]) + 0.25 * (expected[1, 0, 1] + expected[1, 1, 1]),
    ]
    assert found.tolist() == pytest.approx([float(one) for one in by_hand])


def test_it_learns_which_states_end_well(policy: Path) -> None:
    critic = critic_of(policy, "scalar")
    optimizer = torch.optim.AdamW(critic.parameters(), lr=1e-3)
    outcomes = torch.tensor([1.0, 0.0, 1.0])
    for _ in range(20):
        optimizer.zero_grad()
        outcome_losses(critic(PROMPTS), outcomes).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    good, bad, other = values(critic, PROMPTS)
    assert min(good, other) > 0.7
    assert bad < 0.3


def test_published_weights_make_the_same_critic_again(policy: Path, tmp_path: Path) -> None:
    critic = critic_of(policy, "double")
    save_weights(critic, tmp_path / "critic.safetensors")
    again = load_critic(policy, "double", weights=tmp_path / "critic.safetensors")
    assert values(again, PROMPTS) == values(critic, PROMPTS)
