"""The arithmetic of docs/scale.md against published counts, against real encodings, and against itself."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fakes.bare_step import bare_step
from hindcast.app.cli import app
from hindcast.app.settings import sizing
from hindcast.app.settings.sizing import GIB, MODELS, Load, adapter_parameters, size_of, with_settings
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
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


def settings_of(**sections: dict[str, Any]) -> Settings:
    return Settings.model_validate({"learner": {"options": {"group_batch": 2}}, **sections})


class TestSettings:
    """What a run's settings add to an estimate, against figures computed by hand."""

    def test_continuations_are_further_episodes_that_sample_half_of_their_steps(self) -> None:
        """Of 10 episodes 6 continue another: 3/10 of all recorded steps are repeated, 7 of 10 steps are sampled."""
        curriculum = {"group_size": 4, "branches": 3, "branch_steps": 2}
        load = with_settings(Load(actors=1, contexts=7), settings_of(curriculum=curriculum))
        assert (load.group, load.continuations, load.batch) == (4, 6, 20)
        assert load.sampled_steps == pytest.approx(7)
        assert load.step_page_s == pytest.approx(1 / 0.7)
        found = size_of(load, servers_steps_s=9.8)
        assert found.steps_s == pytest.approx(7 / (1 / 0.7 + 7 / 9.8))  # 3.266…
        assert found.episodes_day == pytest.approx(found.steps_s * 86_400 / 7)
        log_episode = (
            10 * sizing.log_bytes_step(3000, 100) + 2_700 + 5 * 310
        )  # repeated steps are recorded, too
        assert found.log_gib_day == pytest.approx(found.episodes_day * log_episode / GIB)
        assert found.blob_bytes_episode == 8 * 8_000  # repeated pages are stored already
        plain = size_of(Load(actors=1, contexts=7), servers_steps_s=9.8)
        assert plain.steps_s == pytest.approx(7 / (1 + 7 / 9.8))

    def test_continuations_repeat_half_of_their_steps_on_average(self) -> None:
        """They begin at any step but the first: of ten steps they repeat 1 to 9."""
        assert sum(range(1, 10)) / 9 / 10 == sizing.REPEATED

    def test_checkpoints_take_disk_by_their_number_and_writes_by_their_interval(self) -> None:
        """Rank 16 of 8B: 41 943 040 parameters, 12 bytes each, .46875 GiB."""
        learner = {"checkpoint_every": 5, "keep_checkpoints": 7, "options": {"group_batch": 2}}
        load = with_settings(Load(lora_rank=16), settings_of(learner=learner, curriculum={"group_size": 6}))
        found = size_of(load)
        assert found.checkpoint_gib == pytest.approx(0.46875)
        assert found.checkpoints_gib == pytest.approx(8 * 0.46875)
        assert found.checkpoints_gib_day == pytest.approx(found.episodes_day / 12 / 5 * 0.46875)

    def test_the_interval_of_checkpoints_follows_the_size_of_the_base_where_it_is_not_set(self) -> None:
        """0.5B: 494 032 768 parameters of 4 bytes are five times 400 MB."""
        assert with_settings(Load(model="0.5B"), settings_of()).checkpoint_every == 5
        assert with_settings(Load(model="8B"), settings_of()).checkpoint_every == 10
        assert with_settings(Load(model="8B", lora_rank=8), settings_of()).checkpoint_every == 1

    def test_screenshots_follow_the_choice_the_rate_and_the_width(self) -> None:
        def a_day(**actors: Any) -> float:
            load = with_settings(Load(actors=1, contexts=1, page_s=9), settings_of(actors=actors))
            return size_of(load, servers_steps_s=1.0).screenshots_gib_day

        episodes = 86_400 / 10 / 10  # one context: 9 s a page and 1 s an answer, ten steps
        assert a_day(screenshots="off") == 0
        assert a_day() == pytest.approx(episodes * 2 * 35_000 / GIB)
        assert a_day(screenshots="all") == pytest.approx(episodes * 11 * 35_000 / GIB)
        assert a_day(screenshot_width=320) == pytest.approx(a_day() / 4)
        assert a_day(screenshots="all", screenshot_rate=0.01) == pytest.approx(864 * 35_000 / GIB)
        seen = a_day(screenshots="off", screenshot_observation="newest", screenshot_rate=0.01)
        assert seen == a_day(screenshots="all"), "no rate bounds what the policy sees"

    def test_float32_doubles_the_frozen_weights_and_has_its_own_arithmetic(self) -> None:
        load = with_settings(
            Load(), settings_of(learner={"precision": "float32", "options": {"group_batch": 2}})
        )
        found = size_of(load)
        assert found.learner_gib == pytest.approx((16 + 4) * 8_030_261_248 / GIB)
        assert found.learner_gpus == 4
        assert found.learner_tokens_s == pytest.approx(4 * 0.35 * 67e12 / (8 * 8_030_261_248))  # 1 460
        assert with_settings(Load(), settings_of()).precision == "bf16"


def test_the_command_reads_the_settings_and_says_what_it_assumes() -> None:
    words = ["size", "--set", "learner.algorithm=branching", "--set", "curriculum.branches=3"]
    words += ["--set", "learner.precision=float32", "--set", "learner.checkpoint_every=4"]
    text = CliRunner().invoke(app, words).stdout
    assert "(float32, without activations)" in text
    assert "3 of 11 episodes of a group are continuations" in text
    assert "one after every 4 batches of" in text
    assert "35,000 bytes each at 640 pixels and quality 60" in text


def test_an_unknown_model_is_told_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match=r"no model '9B'.*8B"):
        size_of(Load(model="9B"))


def test_the_command_prints_the_same_numbers() -> None:
    runner = CliRunner()
    printed = runner.invoke(app, ["size", "--model", "70B", "--json"])
    assert json.loads(printed.stdout)["parameters"] == PUBLISHED["70B"]
    text = runner.invoke(app, ["size", "--actors", "64"]).stdout
    assert "8.03 billion parameters" in text
