"""The arithmetic of docs/scale.md against published counts, against real encodings, and against itself."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fakes.bare_step import bare_step
from hindcast.app.cli import app
from hindcast.app.settings import sizing
from hindcast.app.settings.sizing import GIB, MODELS, Load, adapter_parameters, size_of
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.errors import SettingsError
from hindcast.events.codec import encode_fact

PUBLISHED = {
    "0.5B": 494_032_768,
    "1.5B": 1_543_714_304,
    "3B": 3_085_938_688,
    "7B": 7_615_616_512,
    "8B": 8_030_261_248,
    "32B": 32_763_876_352,
    "70B": 70_553_706_496,
}
"""As the models' own files say (the tensors' total on their pages)."""


def test_parameters_are_those_of_the_published_models() -> None:
    assert {name: shape.parameters for name, shape in MODELS.items()} == PUBLISHED


def test_a_cache_takes_what_its_shape_says() -> None:
    """Llama 3.1 8B: 2 (keys, values) x 32 layers x 8 heads x 128 x 2 bytes."""
    assert MODELS["8B"].kv_bytes == 131_072


def test_an_adapter_has_as_many_parameters_as_its_matrices() -> None:
    """Llama 3.1 8B, rank 16, all linear layers: 41 943 040, as peft prints for it."""
    assert adapter_parameters(MODELS["8B"], 16) == 41_943_040


def test_the_learner_holds_weights_gradient_two_moments_and_the_reference() -> None:
    whole, alone = size_of(Load(model="8B")), size_of(Load(model="8B", reference=False))
    frozen = 2 * 8_030_261_248 + 2 * 128_256 * 4096  # bf16, the embedding in float32
    assert whole.learner_gib == pytest.approx((16 * 8_030_261_248 + frozen) / GIB)
    assert alone.learner_gib == pytest.approx(16 * 8_030_261_248 / GIB)
    adapter = size_of(Load(model="8B", lora_rank=16))
    assert adapter.learner_gib == pytest.approx((frozen + 16 * 41_943_040) / GIB)
    assert adapter.checkpoint_gib == pytest.approx(12 * 41_943_040 / GIB)


def test_a_steps_tokens_take_in_the_log_what_its_encoding_takes() -> None:
    def encoded(prompt: int, answer: int) -> int:
        ids = pack_ids([7] * answer)
        step = msgspec.structs.replace(
            bare_step("ep_0123456789ab", 3),
            prompt_ids=pack_ids([7] * prompt),
            action_ids=ids,
            logprobs=pack_floats([-1.0] * answer),
            versions=ids,
        )
        return len(encode_fact(step))

    added = encoded(5000, 700) - encoded(1000, 300)
    reckoned = sizing.log_bytes_step(5000, 700) - sizing.log_bytes_step(1000, 300)
    assert added == pytest.approx(reckoned, abs=16)
    assert encoded(1000, 300) < sizing.log_bytes_step(1000, 300)


@given(
    actors=st.integers(1, 2000),
    prompt=st.integers(100, 100_000),
    answer=st.integers(1, 4000),
    model=st.sampled_from(sorted(MODELS)),
    gpu=st.sampled_from(sorted(sizing.GPUS)),
)
def test_more_of_anything_never_needs_less(
    actors: int, prompt: int, answer: int, model: str, gpu: str
) -> None:
    one = size_of(Load(model=model, gpu=gpu, actors=actors, prompt=prompt, answer=answer))
    more = size_of(Load(model=model, gpu=gpu, actors=2 * actors, prompt=prompt, answer=answer))
    longer = size_of(Load(model=model, gpu=gpu, actors=actors, prompt=2 * prompt, answer=answer))
    assert more.servers >= one.servers
    assert more.actors_gib > one.actors_gib
    assert more.steps_s >= one.steps_s * 0.999
    assert longer.log_bytes_step > one.log_bytes_step
    assert longer.server_contexts <= one.server_contexts
    assert one.steps_s <= one.servers * one.server_steps_s * 1.001
    assert one.learner_gpus_to_keep_up >= one.learner_gpus
    assert one.weights_gib < one.server_gpus * sizing.GPUS[gpu].gib


def test_an_unknown_model_is_told_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match=r"no model '9B'.*8B"):
        size_of(Load(model="9B"))


def test_the_command_prints_the_same_numbers() -> None:
    runner = CliRunner()
    printed = runner.invoke(app, ["size", "--model", "70B", "--json"])
    assert json.loads(printed.stdout)["parameters"] == PUBLISHED["70B"]
    text = runner.invoke(app, ["size", "--actors", "64"]).stdout
    assert "8.03 billion parameters" in text
