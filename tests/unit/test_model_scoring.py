from pathlib import Path
from random import Random

import pytest
import torch

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.models.logprobs import SampleToScore, packs, score
from hindcast.core.models.policy import load_policy

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> torch.nn.Module:
    folder: Path = write_tiny_policy(tmp_path_factory.mktemp("tiny"))
    loaded: torch.nn.Module = load_policy(folder).model
    return loaded


def _samples(count: int) -> list[SampleToScore]:
    random = Random(8)
    return [
        SampleToScore(
            [random.randrange(4, 2000) for _ in range(random.randint(1, 80))],
            [random.randrange(4, 2000) for _ in range(random.randint(1, 12))],
        )
        for _ in range(count)
    ]


def test_packed_scores_equal_those_of_a_plain_forward_pass(model: torch.nn.Module) -> None:
    samples = _samples(17)
    with torch.no_grad():
        scores = score(model, samples, temperature=0.8, tokens_per_forward=300)
        for sample, logprobs in zip(samples, scores, strict=True):
            ids = torch.tensor([[*sample.prompt_ids, *sample.action_ids]])
            logits = model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1] / 0.8
            expected = torch.log_softmax(logits, -1)[range(len(sample.action_ids)), list(sample.action_ids)]
            assert torch.allclose(logprobs, expected, atol=1e-4)


def test_padding_by_a_longer_companion_changes_no_gradient(model: torch.nn.Module) -> None:
    short, long = SampleToScore([5, 6, 7], [8, 9]), SampleToScore(list(range(10, 90)), [4, 5, 6])

    def gradient(samples: list[SampleToScore]) -> torch.Tensor:
        model.zero_grad()
        score(model, samples, temperature=1.0, tokens_per_forward=10_000)[0].sum().backward()
        return torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])

    alone, beside = gradient([short]), gradient([short, long])
    # other sizes sum in another order: the whole gradient moves by rounding, no entry of it has a bound of its own
    assert (alone - beside).norm() < 1e-5 * alone.norm()


def test_equal_samples_give_equal_bits(model: torch.nn.Module) -> None:
    with torch.no_grad():
        first, second = (score(model, _samples(9), temperature=1.0, tokens_per_forward=256) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_packs_hold_every_sample_once_and_stay_within_the_budget() -> None:
    samples = _samples(40)
    parts = packs(samples, tokens_per_forward=256)
    assert sorted(index for part in parts for index in part) == list(range(40))
    for part in parts:
        longest = max(len(samples[index].prompt_ids) + len(samples[index].action_ids) for index in part)
        assert len(part) == 1 or longest * len(part) <= 256
    assert len(parts) < 25


def test_a_sample_beyond_the_budget_gets_a_pass_of_its_own() -> None:
    samples = [SampleToScore([1] * 500, [2]), SampleToScore([1], [2])]
    assert packs(samples, tokens_per_forward=100) == [[1], [0]]
