"""`hindcast size --emit`: the placement on GPUs, what is refused, and files that run."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hindcast.app.cli import app
from hindcast.app.settings import placement
from hindcast.app.settings.configuration import resolve
from hindcast.app.settings.deployment import DeploymentRequest, plan_deployment, shape_in
from hindcast.app.settings.deployment_text import settings_text
from hindcast.app.settings.placement import Placement, place
from hindcast.app.settings.sizing import GIB, GPUS, MODELS, SERVER_SHARE, Load, Shape
from hindcast.core.errors import ModelFileError, SettingsError
from hindcast.core.models.folders import base_policy_folder
from hindcast.learner.recipes import recipe_names

SCALE = Path(__file__).parents[2] / "docs" / "scale"
SAMPLE = 4352


def request(model: str = "8B", *, gpus: int = 8, gpu: str = "h100", **given: object) -> DeploymentRequest:
    load = Load(model=model, gpu=gpu, actors=0, lora_rank=int(str(given.pop("lora_rank", 0))))
    return DeploymentRequest(load=load, gpus=gpus, **{"recipe": "mgrpo", **given})  # type: ignore[arg-type]


def settled(text: str, folder: Path, *overrides: str) -> dict[str, object]:
    file = folder / "settings.toml"
    file.write_text(text)
    return resolve(file=file, environment={}, overrides=overrides).settings.model_dump()


@given(
    model=st.sampled_from(sorted(MODELS)),
    gpu=st.sampled_from(sorted(GPUS)),
    gpus=st.integers(1, 16),
    rank=st.sampled_from([0, 8, 64]),
    passes=st.integers(1, 4),
    elsewhere=st.booleans(),
)
def test_what_is_placed_fits_and_overlaps_only_on_a_single_gpu(
    model: str, gpu: str, gpus: int, rank: int, passes: int, elsewhere: bool
) -> None:
    load = Load(model=model, gpu=gpu, lora_rank=rank)
    try:
        found = place(load, gpus=gpus, sample=SAMPLE, passes=passes, elsewhere=elsewhere)
    except SettingsError:
        return
    used = {*found.learner_gpus, *found.server_gpus}
    assert used <= set(range(gpus))
    assert found.shared == (gpus == 1 and not elsewhere)
    assert bool(found.server_gpus) != elsewhere
    assert found.tokens_per_forward >= SAMPLE
    share = found.memory_share if found.shared else 0
    assert found.learner_gib + share * GPUS[gpu].gib <= 0.95 * GPUS[gpu].gib
    if found.servers:
        cache = found.contexts / found.servers * (load.prompt + load.answer) * MODELS[model].kv_bytes
        assert cache + 2 * MODELS[model].parameters <= found.server_gib * GIB


def test_more_gpus_never_train_less() -> None:
    def rate(found: Placement) -> float:
        return min(found.servers_steps_s * 3100, found.learner_tokens_s / 2)

    rates = [rate(place(Load(model="8B"), gpus=gpus, sample=SAMPLE, passes=2)) for gpus in range(5, 17)]
    assert rates == sorted(rates)


def test_a_server_of_a_large_model_has_several_gpus() -> None:
    found = place(Load(model="32B", lora_rank=16), gpus=8, sample=SAMPLE)
    assert found.gpus_per_server > 1
    assert len(found.server_gpus) % found.gpus_per_server == 0


def test_activations_are_near_the_measured_ones() -> None:
    """A Llama of .42 billion weights, 8192 tokens a pass, every layer kept: 20.84 GiB at most on an H200, of which weights,
    gradient, moments, reference and bf16 copies take 22 bytes a parameter."""
    shape = Shape(layers=24, hidden=1024, heads=16, kv_heads=16, ffn=4096, vocabulary=2048)
    kept = 24 * 8192 * placement.layer_bytes(shape) / GIB
    assert kept == pytest.approx(20.84 - 22 * 0.42e9 / GIB, rel=0.1)


def test_a_refusal_has_the_numbers_and_what_fits() -> None:
    with pytest.raises(SettingsError) as refused:
        plan_deployment(request("8B", gpus=1))
    message = str(refused.value)
    assert "8B with full AdamW and a KL reference does not fit on 1 h100" in message
    assert "136 GiB" in message
    proposed = re.findall(r"^    (--model .*)$", message, flags=re.MULTILINE)
    assert "--model 8B --lora-rank 16 --gpu h100 --gpus 1" in proposed
    runner = CliRunner()
    for line in proposed:
        done = runner.invoke(app, ["size", *shlex.split(line), "--emit", "settings.toml"])
        assert done.exit_code == 0, f"{line}: {done.output}"


def test_a_recipe_without_a_reference_needs_less() -> None:
    with pytest.raises(SettingsError, match="KL reference"):
        plan_deployment(request("8B", gpus=2, gpu="h200"))
    assert plan_deployment(request("8B", gpus=4, gpu="h100", recipe="sft")).load.reference is False


@pytest.mark.parametrize("recipe", recipe_names())
def test_every_recipes_file_says_the_same_when_it_is_read(recipe: str, tmp_path: Path) -> None:
    found = plan_deployment(request("3B", recipe=recipe))
    text = settings_text(found)
    assert settled(text, tmp_path) == found.settings.model_dump()
    assert found.settings.learner.device == "cuda"
    assert found.settings.learner.processes + len(found.settings.vllm.gpus) == 8


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "rank"),
    [("0.5B", "rtx4090", 1, 0), ("1.5B", "l4", 1, 16), ("8B", "h100", 1, 16), ("8B", "h100", 8, 0)],
)
def test_the_command_writes_a_file_that_config_check_accepts(
    model: str, gpu: str, gpus: int, rank: int, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    words = ["--model", model, "--gpu", gpu, "--gpus", str(gpus), "--lora-rank", str(rank)]
    runner = CliRunner()
    assert runner.invoke(app, ["size", *words, "--emit", "settings.toml", "--to", str(file)]).exit_code == 0
    checked = runner.invoke(app, ["config", "check", str(file)])
    assert checked.exit_code == 0, checked.output
    learner = tomllib.loads(file.read_text())["learner"]
    assert learner.get("lora_rank", 0) == rank
    vllm = resolve(file=file, environment={}).settings.vllm
    assert (vllm.gpus == (0,)) == (gpus == 1)
    assert (vllm.memory_share < SERVER_SHARE) == (gpus == 1)


def test_a_setting_of_the_command_wins_and_contradictions_are_refused() -> None:
    found = plan_deployment(request(overrides=["learner.learning_rate=3e-6", "run.seed=7"]))
    assert found.settings.learner.learning_rate == 3e-6
    assert "seed = 7  # --set" in settings_text(found)
    with pytest.raises(SettingsError, match="both use GPU 0"):
        plan_deployment(request(overrides=["vllm.gpus=[0]", "vllm.memory_share=0"]))
    with pytest.raises(SettingsError, match="there is no setting"):
        plan_deployment(request(overrides=["learner.rate=1"]))


def test_servers_elsewhere_leave_all_gpus_to_the_learner() -> None:
    found = plan_deployment(
        request(overrides=["vllm.servers=http://vllm-1:8000", "vllm.weights_folder=/shared"])
    )
    assert found.settings.learner.processes == 8
    assert "vllm.python" not in found.values


def test_the_worked_deployments_settings_are_what_the_command_in_them_writes() -> None:
    text = (SCALE / "settings.toml").read_text()
    command = re.search(r"^#     (hindcast size (?:.*\\\n)*.*)$", text, flags=re.MULTILINE)
    assert command is not None
    words = shlex.split(command.group(1).replace("\\\n#", ""))
    assert CliRunner().invoke(app, words[1:]).stdout == text, f"run: {shlex.join(words)} --to FILE"


def test_a_file_is_never_overwritten_by_other_content(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    words = ["size", "--gpus", "8", "--emit", "settings.toml", "--to", str(file)]
    runner = CliRunner()
    assert [runner.invoke(app, words).exit_code for _ in range(2)] == [0, 0]
    refused = runner.invoke(app, [*words, "--set", "run.seed=2"])
    assert isinstance(refused.exception, SettingsError)


def test_the_shape_of_a_folder_is_that_of_its_configuration(tmp_path: Path) -> None:
    config = {
        "num_hidden_layers": 24,
        "hidden_size": 896,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
        "model_type": "qwen2",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert shape_in(tmp_path).parameters == MODELS["0.5B"].parameters
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match="nearest --model"):
        shape_in(tmp_path)


def test_a_refusal_of_a_folders_model_names_no_model_of_the_table() -> None:
    load = Load(shape=MODELS["8B"])
    with pytest.raises(
        SettingsError, match=r"The model of --base with full AdamW.*\n    --base FOLDER --gpu h100"
    ):
        place(load, gpus=1, sample=SAMPLE)


def test_the_shipped_policy_in_place_of_a_large_one_resolves_without_a_gpu(tmp_path: Path) -> None:
    """What a machine without GPU cannot have is overridden, and nothing else."""
    text = settings_text(plan_deployment(request("0.5B", gpu="rtx4090", gpus=1)))
    found = settled(text, tmp_path, *WITHOUT_GPU)
    assert found["policy"]["base"] == "base"  # type: ignore[index]
    assert base_policy_folder().is_dir()


WITHOUT_GPU = ("policy.base=base", "policy.engine=in_process", "learner.device=cpu", "vllm.gpus=[]")
"""Overrides with which an emitted file runs on a machine without GPU."""
