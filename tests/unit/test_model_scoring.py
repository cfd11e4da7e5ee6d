from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from bench.peaks import forget_peak, peak_mib
from fakes.tiny_policy import write_tiny_policy
from hindcast.core.grammar.allowed_tokens import pack_allowed
from hindcast.core.models import logprobs
from hindcast.core.models.arithmetic import arithmetic
from hindcast.core.models.logprobs import SampleToScore, packs, read_out, score, score_pack
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


def _constrained(samples: list[SampleToScore], vocabulary: int) -> list[SampleToScore]:
    """Allow only even tokens and the sampled one at each token of every second sample."""
    found = list(samples)
    for index in range(0, len(samples), 2):
        sets = np.zeros((len(samples[index].action_ids), vocabulary), dtype=np.bool_)
        sets[:, ::2] = True
        sets[range(len(sets)), list(samples[index].action_ids)] = True
        found[index] = samples[index]._replace(allowed=pack_allowed(list(sets)))
    return found


@pytest.mark.parametrize("joined", [False, True])
def test_chunks_of_tokens_give_the_bits_of_the_whole(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    samples = _constrained(_samples(6), model.get_output_embeddings().weight.shape[0])
    results = []
    for size in (10_000, 5):
        monkeypatch.setattr(logprobs, "TOKENS_PER_CHUNK", size)
        model.zero_grad()
        scores = torch.cat(score_pack(model, samples, temperature=0.7, joined=joined))
        (scores * torch.linspace(-1, 1, len(scores))).sum().backward()
        gradients = [value.grad.clone() for value in model.parameters() if value.grad is not None]
        results.append([scores.detach(), *gradients])
    assert len(results[0][0]) > 3 * 5
    assert all(torch.equal(whole, chunked) for whole, chunked in zip(*results, strict=True))


class _Logits(torch.nn.Module):
    """A head alone: its parameter holds the logits of each action token."""

    def __init__(self, tokens: int, vocabulary: int) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(tokens, vocabulary))

    def read_out(self, *_: object) -> torch.Tensor:
        return self.logits * 1.0


def test_a_gradient_holds_the_logits_of_all_tokens_but_no_further_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, vocabulary = 4096, 8000
    sample = SampleToScore([1], [7] * tokens)

    def copies(size: int) -> float:
        monkeypatch.setattr(logprobs, "TOKENS_PER_CHUNK", size)
        model = _Logits(tokens, vocabulary)
        forget_peak()
        before = peak_mib()
        score_pack(model, [sample], temperature=0.7)[0].sum().backward()
        return (peak_mib() - before) / (tokens * vocabulary * 4 / 2**20)

    copies(logprobs.TOKENS_PER_CHUNK)  # memory of torch's first backward pass
    chunked, whole = copies(logprobs.TOKENS_PER_CHUNK), copies(tokens)
    print(f"copies of the logits: {chunked:.2f} in chunks, {whole:.2f} whole")
    assert chunked < 2.7 < whole


def test_bf16_rounds_the_logits_and_leaves_log_probabilities_and_gradients_in_float32(
    model: torch.nn.Module,
) -> None:
    model.zero_grad()
    with arithmetic("bf16", model):
        logits = read_out(model, torch.tensor([[5, 6]]), torch.tensor([0]), torch.tensor([1]), dict)
        (scores,) = score_pack(model, [SampleToScore([5, 6], [7, 8])], temperature=1.0)
    scores.sum().backward()
    assert logits.dtype == torch.bfloat16
    assert scores.dtype == torch.float32
    assert {value.grad.dtype for value in model.parameters() if value.grad is not None} == {torch.float32}
