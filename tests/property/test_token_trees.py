"""Samples in a tree score, and teach, what they do in rows of their own."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.core.models.logprobs import SampleToScore, score_pack
from hindcast.core.models.token_trees import TokenTree, can_share, reach_back, token_trees, tree_passes

pytestmark = pytest.mark.torch

TOLERANCE = 1e-4
"""Of a log-probability, and of a weight's gradient as a share of the largest one."""
MOST = 60
"""Tokens of a row."""
FEW = st.integers(2, 4)  # few different tokens, so that many samples begin alike
SAMPLES = st.lists(
    st.builds(
        SampleToScore,
        st.one_of(st.lists(FEW, min_size=1, max_size=24), st.just([2] * 20), st.just([2] * 20 + [3] * 5)),
        st.lists(FEW, min_size=1, max_size=6),
        st.just(b""),
        st.just(()),
    ),
    min_size=1,
    max_size=8,
)


@cache
def attention_only() -> Any:
    shape = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    return _random(LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **shape)))


@cache
def convolving() -> Any:
    with TemporaryDirectory() as folder:
        return _random(tiny_model(write_tiny_policy(Path(folder)), seed=1))


def _random(model: Any) -> Any:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        for value in model.parameters():
            if value.ndim > 1:
                value.normal_(std=0.2)
    return model.eval()


def trees_of(samples: list[SampleToScore], reach: int, most: int = MOST) -> list[TokenTree]:
    prompts, answers = [one.prompt_ids for one in samples], [one.action_ids for one in samples]
    return token_trees(prompts, answers, max_tokens=most, reach=reach)


def learned_from(model: Any, samples: list[SampleToScore], *, shared: bool) -> tuple[list[Any], list[Any]]:
    """Log-probabilities in the order of the samples, and the gradient of their sum."""
    model.zero_grad()
    if shared:
        trees = trees_of(samples, reach_back(model))
        order = [member for tree in trees for member in tree.members]
        scores = score_pack(model, [samples[index] for index in order], temperature=0.8, trees=trees)
        found = [scores[order.index(index)] for index in range(len(samples))]
    else:
        found = score_pack(model, samples, temperature=0.8)
    torch.cat(found).sum().backward()
    gradient = [value.grad.clone() for value in model.parameters() if value.grad is not None]
    return [one.detach() for one in found], gradient


@pytest.mark.parametrize("make", [attention_only, convolving])
def test_a_tree_and_rows_of_their_own_agree(make: Any) -> None:
    model = make()

    @settings(max_examples=15, deadline=None)
    @given(SAMPLES)
    def agree(samples: list[SampleToScore]) -> None:
        (shared, gradient), (alone, expected) = (
            learned_from(model, samples, shared=way) for way in (True, False)
        )
        for ours, theirs in zip(shared, alone, strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=TOLERANCE)
        largest = max(float(value.abs().max()) for value in expected)
        for ours, theirs in zip(gradient, expected, strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=TOLERANCE * largest)

    agree()


@given(SAMPLES, st.integers(0, 9), st.integers(1, 60))
def test_rows_hold_every_sample_once_and_keep_to_the_budget(
    samples: list[SampleToScore], reach: int, most: int
) -> None:
    trees = trees_of(samples, reach, most)
    assert sorted(member for tree in trees for member in tree.members) == list(range(len(samples)))
    for tree in trees:
        assert len(tree.ids) <= most or len(tree.members) == 1
        for member, places in zip(tree.members, tree.answers, strict=True):
            prompt, answer = samples[member].prompt_ids, samples[member].action_ids
            assert [tree.depths[place] for place in places] == list(
                range(len(prompt) - 1, len(prompt) + len(answer) - 1)
            )
    for rows in tree_passes(trees, tokens_per_forward=most):
        assert len(rows) == 1 or len(rows) * max(len(tree.ids) for tree in rows) <= most


def test_a_group_that_reads_one_page_reads_it_once() -> None:
    page = list(range(2, 42))
    samples = [SampleToScore(page, [50, 51, answer]) for answer in range(8)]
    (tree,) = trees_of(samples, reach=9, most=1000)
    assert len(tree.ids) == 40 + 3 + 7 * (
        9 + 1
    )  # each further answer differs in its last token, and repeats nine
    (tree,) = trees_of(samples, reach=0, most=1000)
    assert len(tree.ids) == 40 + 2 + 8


def test_the_answer_to_one_page_does_not_depend_on_other_answers() -> None:
    """The mask can be seen to work: without it the second answer reads the first."""
    model, page = attention_only(), list(range(2, 42))
    samples = [SampleToScore(page, [50, 51, 52, 53]), SampleToScore(page, [54, 55, 56, 57])]
    trees = trees_of(samples, reach=0, most=1000)
    expected = [one.tolist() for one in score_pack(model, samples, temperature=1.0)]
    found = [one.tolist() for one in score_pack(model, samples, temperature=1.0, trees=trees)]
    assert found[1] == pytest.approx(expected[1], abs=TOLERANCE)

    def everything(length: int) -> torch.Tensor:
        return torch.ones(length, length, dtype=torch.bool).tril()

    trees[0].mask = everything  # type: ignore[method-assign]
    unmasked = [one.tolist() for one in score_pack(model, samples, temperature=1.0, trees=trees)]
    assert unmasked[1] != pytest.approx(expected[1], abs=1e-2)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_models_that_share_are_told_from_those_that_do_not(precision: Any) -> None:
    assert can_share(attention_only(), precision)
    assert can_share(convolving(), precision)
    shape = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    sliding = MistralConfig(num_attention_heads=4, num_key_value_heads=2, sliding_window=16, **shape)
    assert not can_share(_random(MistralForCausalLM(sliding)), precision)


def test_a_model_whose_convolutions_reach_further_than_is_repeated_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hindcast.core.models.token_trees.reach_back", lambda model: 1)
    assert not can_share(convolving())
