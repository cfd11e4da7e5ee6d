"""Samples in one row without padding score, and teach, what they do in rows of their own."""

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.core.models.logprobs import SampleToScore, computes_packed_alike, packs, score_pack

pytestmark = pytest.mark.torch

TOLERANCE = 1e-4
"""Of a log-probability, and of a weight's gradient as a share of the largest one."""
IDS = st.lists(st.integers(2, 59), min_size=1, max_size=9)
SAMPLES = st.lists(st.builds(SampleToScore, IDS, IDS, st.just(b""), st.just(())), min_size=1, max_size=6)


@cache
def attention_only() -> Any:
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for value in model.parameters():
                if value.ndim > 1:
                    value.normal_(std=0.2)
    return model


def learned_from(
    samples: list[SampleToScore], *, joined: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Log-probabilities, and the gradient of their sum."""
    model = attention_only()
    model.zero_grad()
    found = score_pack(model, samples, temperature=0.8, joined=joined)
    torch.cat(found).sum().backward()
    return [one.detach() for one in found], [value.grad.clone() for value in model.parameters()]


@settings(max_examples=25, deadline=None)
@given(SAMPLES)
def test_one_row_and_many_rows_agree(samples: list[SampleToScore]) -> None:
    (joined, gradient), (apart, expected) = (learned_from(samples, joined=way) for way in (True, False))
    for ours, theirs in zip(joined, apart, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=TOLERANCE)
    largest = max(float(value.abs().max()) for value in expected)
    for ours, theirs in zip(gradient, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=TOLERANCE * largest)


@given(SAMPLES, st.integers(1, 40))
def test_a_row_holds_as_many_tokens_as_the_budget_and_every_sample_once(
    samples: list[SampleToScore], budget: int
) -> None:
    found = packs(samples, tokens_per_forward=budget, joined=True)
    assert sorted(index for pack in found for index in pack) == list(range(len(samples)))
    for pack in found:
        tokens = sum(len(samples[index].prompt_ids) + len(samples[index].action_ids) for index in pack)
        assert tokens <= budget or len(pack) == 1


def test_a_model_with_convolutions_is_found_out(tmp_path: Any) -> None:
    convolving = tiny_model(write_tiny_policy(tmp_path), seed=1)
    for precision in ("float32", "bf16"):
        assert computes_packed_alike(attention_only(), precision)
        assert not computes_packed_alike(convolving, precision)


def test_a_sample_that_saw_another_would_be_noticed() -> None:
    """The property above can fail: without positions that begin anew the second sample reads the first."""
    first, second = SampleToScore([3, 4, 5], [6]), SampleToScore([7, 8], [9, 10])
    run_on = SampleToScore([*first.prompt_ids, *first.action_ids, *second.prompt_ids], second.action_ids)
    (alone,) = score_pack(attention_only(), [second], temperature=1.0)
    (continued,) = score_pack(attention_only(), [run_on], temperature=1.0)
    assert alone.tolist() != pytest.approx(continued.tolist(), abs=1e-2)
