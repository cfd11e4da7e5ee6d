"""Prompts that an engine has read: what is computed again, what is kept, and what comes out."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.engines.kept_prompts import ALWAYS_KEPT, KEPT_BYTES, SHORTEST_PREFIX, KeptPrompts
from hindcast.actors.engines.lfm2 import Lfm2Slots
from hindcast.actors.engines.slots import Prefix, Slots
from hindcast.core.models.vision import ProcessedImage

pytestmark = pytest.mark.torch

LONG = list(range(4, 4 + 3 * SHORTEST_PREFIX))


class Counting:
    """Slots that note how many tokens of each prompt they computed."""

    def __init__(self, slots: Slots, size: int | None = None) -> None:
        self._slots = slots
        self._size = size
        self.computed: list[int] = []

    def prefill(
        self,
        prompt_ids: Sequence[int],
        pictures: Sequence[ProcessedImage] = (),
        begin: Prefix[Any] | None = None,
    ) -> tuple[Any, torch.Tensor]:
        self.computed.append(len(prompt_ids) - (begin.length if begin else 0))
        return self._slots.prefill(prompt_ids, pictures, begin)

    def size(self, states: Any) -> int:
        return self._slots.size(states) if self._size is None else self._size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slots, name)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny_model(write_tiny_policy(tmp_path_factory.mktemp("policy")), seed=3).eval()


def computed(model: Any, prompts: Sequence[Sequence[int]], size: int | None = None) -> list[int]:
    slots = Counting(Lfm2Slots(model, 2), size)
    kept = KeptPrompts(slots)
    with torch.inference_mode():
        for prompt in prompts:
            kept.prefill(prompt)
    return slots.computed


def test_a_prompt_that_comes_again_is_not_read(model: Any) -> None:
    assert computed(model, [LONG, LONG]) == [len(LONG)]


def test_a_prompt_is_read_from_where_it_parts_from_the_likest_one(model: Any) -> None:
    assert computed(model, [LONG, [*LONG[:20], 9, 9], [*LONG[:30], 9, 9]]) == [len(LONG), 2, 2]


def test_the_beginning_of_a_kept_prompt_is_read_for_its_logits_alone(model: Any) -> None:
    assert computed(model, [LONG, LONG[:-5]]) == [len(LONG), 1]


def test_a_short_beginning_is_read_again(model: Any) -> None:
    other = [*LONG[: SHORTEST_PREFIX - 1], 9, 9]
    assert computed(model, [LONG, other]) == [len(LONG), len(other)]


def test_prompts_beyond_the_size_are_forgotten_but_for_the_last_ones(model: Any) -> None:
    prompts = [[token] * 5 for token in range(4, 5 + ALWAYS_KEPT)]
    assert computed(model, [*prompts, prompts[1], prompts[0]], size=KEPT_BYTES) == [5] * (len(prompts) + 1)
    assert computed(model, [*prompts, prompts[1], prompts[0]], size=1) == [5] * len(prompts)


def test_nothing_is_kept_over_a_change_of_weights(model: Any) -> None:
    slots = Counting(Lfm2Slots(model, 2))
    kept = KeptPrompts(slots)
    with torch.inference_mode():
        kept.prefill(LONG)
        kept.clear()
        kept.prefill(LONG)
    assert slots.computed == [len(LONG)] * 2


# few tokens, so that prompts have long beginnings in common
PROMPTS = st.lists(
    st.lists(st.sampled_from((7, 8)), min_size=1, max_size=12).map(lambda ids: [5] * 40 + ids), max_size=12
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompts=PROMPTS)
def test_logits_are_those_of_a_whole_forward_pass(model: Any, prompts: list[list[int]]) -> None:
    kept = KeptPrompts(Lfm2Slots(model, 2))
    with torch.inference_mode():
        for prompt in prompts:
            expected = model(input_ids=torch.tensor([prompt])).logits[0, -1]
            assert torch.allclose(kept.prefill(prompt)[1][0], expected, atol=1e-4)
