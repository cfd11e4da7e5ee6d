"""Both ways of keeping states, on two architectures, against plain forward passes of transformers."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.engines.lfm2 import Lfm2Slots, is_plain_lfm2
from hindcast.actors.engines.slots import CacheSlots, Prefix, Slots
from hindcast.core.errors import ModelFileError

pytestmark = pytest.mark.torch

SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def _loud(model: Any) -> Any:
    """Weights large enough that a wrong state changes the logits."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        for value in model.parameters():
            if value.ndim > 1:
                value.normal_(std=0.2)
    return model.eval()


def _lfm2(folder: Path) -> Any:
    return tiny_model(write_tiny_policy(folder), seed=3).eval()


def _llama(folder: Path) -> Any:
    return _loud(LlamaForCausalLM(LlamaConfig(**SIZES)))


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [(_lfm2, Lfm2Slots), (_lfm2, CacheSlots), (_llama, CacheSlots)],
    ids=["lfm2-by-hand", "lfm2-through-its-cache", "llama-through-its-cache"],
)
def test_logits_equal_those_of_a_forward_pass_while_sequences_come_and_go(
    tmp_path: Path, architecture: Callable[[Path], Any], kind: Callable[[Any, int], Slots]
) -> None:
    model = architecture(tmp_path)
    random = Random(2)
    with torch.inference_mode():
        slots = kind(model, 4)
        sequences: list[list[int]] = []
        earlier: list[tuple[list[int], Any]] = []

        def check(logits: torch.Tensor, sequence: list[int]) -> None:
            expected = model(input_ids=torch.tensor([sequence])).logits[0, -1]
            assert torch.allclose(logits, expected, atol=1e-4)

        for turn in range(60):
            if len(sequences) < 4 and (not sequences or random.random() < 0.5):
                prompt = [random.randrange(4, 300) for _ in range(random.choice((1, 2, 3, 5, 30, 250)))]
                begin = None
                if earlier and random.random() < 0.6:
                    like, states = random.choice(earlier)
                    begin = Prefix(states, random.randint(1, len(like)))
                    prompt = like[: begin.length] + prompt
                states, logits = slots.prefill(prompt, begin=begin)
                check(logits[0], prompt)
                earlier.append((list(prompt), states))
                assert slots.admit(states, len(prompt)) == len(sequences)
                sequences.append(prompt)
            tokens = [random.randrange(4, 300) for _ in sequences]
            step = slots.step(torch.tensor(tokens))
            for sequence, token, logits in zip(sequences, tokens, step, strict=True):
                sequence.append(token)
                if turn % 7 == 0:
                    check(logits, sequence)
            if random.random() < 0.3:
                leaving = random.randrange(len(sequences))
                moved = slots.release(leaving)
                sequences[leaving] = sequences[moved]
                sequences.pop()


def test_new_weights_are_seen_after_a_refresh(tmp_path: Path) -> None:
    model = _lfm2(tmp_path)
    with torch.inference_mode():
        slots = Lfm2Slots(model, 2)
        before = slots.prefill((5, 6, 7))[1]
        for value in model.parameters():
            value.mul_(1.1)
        slots.refresh()
        after = slots.prefill((5, 6, 7))[1]
        assert not torch.allclose(before, after, atol=1e-3)
        assert torch.allclose(after[0], model(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1], atol=1e-4)


def test_a_model_whose_states_are_not_understood_is_refused_in_words() -> None:
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=8))
    with torch.inference_mode():
        slots = CacheSlots(model, 2)
        states, _ = slots.prefill((5, 6, 7))
        with pytest.raises(ModelFileError, match="cannot serve this model"):
            slots.admit(states, 3)


def test_an_lfm2_with_other_parts_is_left_to_transformers(tmp_path: Path) -> None:
    model = _lfm2(tmp_path)
    assert is_plain_lfm2(model)
    model.config.conv_bias = True
    assert not is_plain_lfm2(model)
