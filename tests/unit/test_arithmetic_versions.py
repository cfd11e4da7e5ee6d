"""What `learner.arithmetic` and `learner.float32_head` change, tried on a CPU: kernels for GPUs are chosen by device alone."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.policy_servers.command import FLOAT32_HEAD as SERVED_HEAD
from hindcast.actors.policy_servers.command import server_command, server_environment
from hindcast.core.models.arithmetic import arithmetic, round_frozen_layers
from hindcast.core.models.attention import REPEATED, attention_for
from hindcast.core.models.engine import engine_conflicts
from hindcast.core.models.logprobs import FLOAT32_HEAD, SampleToScore, read_out, score_pack
from hindcast.core.models.policy import load_policy, state_digest
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.learner import update
from hindcast.learner.update import TrainedModel, is_fused

pytestmark = pytest.mark.torch

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
SAMPLES = [SampleToScore(list(range(3, 40)), [7, 8, 9]), SampleToScore(list(range(5, 20)), [4, 2])]


def test_runs_from_before_keep_the_first_version() -> None:
    assert decode_settings({"learner": {"epochs": 1}}).learner.arithmetic == 1
    assert LearnerSettings().arithmetic == 2


def test_kernels_for_gpus_are_chosen_on_gpus_from_version_two_on() -> None:
    assert is_fused(2, GPU)
    assert not is_fused(1, GPU)
    assert not is_fused(2, CPU)
    assert attention_for("sdpa", GPU, "float32", version=2) == REPEATED
    assert attention_for("sdpa", GPU, "float32", version=1) == "sdpa"
    assert attention_for("sdpa", GPU, "bf16", version=2) == "sdpa"
    assert attention_for("sdpa", CPU, "float32", version=2) == "sdpa"
    assert attention_for("flash_attention_2", GPU, "bf16", version=2) == "flash_attention_2"


@pytest.mark.parametrize("joined", [False, True])
def test_attention_with_repeated_keys_is_that_with_shared_ones(tmp_path: Path, *, joined: bool) -> None:
    """Log-probabilities and gradients, padded and packed."""
    folder = write_tiny_policy(tmp_path, llama=True)
    found = []
    for kind in ("sdpa", REPEATED):
        model = load_policy(folder).model
        model.set_attn_implementation(kind)
        scores = torch.cat(score_pack(model, SAMPLES, temperature=1.0, joined=joined))
        scores.sum().backward()
        found.append([scores.detach(), *(one.grad for one in model.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def train(trained: TrainedModel, steps: int) -> None:
    for step in range(steps):
        for index, parameter in enumerate(trained.trained):
            parameter.grad = torch.full_like(parameter, 0.01 * (1 + index % 3) * (-1) ** step)
        trained.step(learning_rate=1e-3, weight_decay=0.01)


@pytest.mark.parametrize("offload", [False, True])
def test_one_kernel_takes_the_same_step_and_goes_on_from_a_checkpoint_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, offload: bool
) -> None:
    folder = write_tiny_policy(tmp_path)

    def made() -> TrainedModel:
        return TrainedModel(
            "policy", tiny_model(folder, seed=2), weight_decay=0.01, offload=offload, arithmetic=2
        )

    apart = made()
    monkeypatch.setattr(update, "is_fused", lambda _version, _device: True)
    fused, resumed = made(), made()
    assert fused.digest == apart.digest
    train(apart, 3)
    train(fused, 3)
    for ours, theirs in zip(fused.trained, apart.trained, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    resumed.restore({name: value.numpy().copy() for name, value in fused.state_tensors().items()}, update=3)
    assert resumed.digest == fused.digest
    train(fused, 2)
    train(resumed, 2)
    assert resumed.digest == fused.digest
    assert fused.digest == state_digest(fused.model, fused.optimizer, arithmetic=2)


@pytest.mark.parametrize("llama", [False, True])
def test_a_float32_head_computes_logits_that_are_not_rounded(tmp_path: Path, *, llama: bool) -> None:
    """From the hidden states of bf16; of a tied head and of one of its own, which stays float32 if it is frozen."""
    model = load_policy(write_tiny_policy(tmp_path, llama=llama)).model.requires_grad_(False)
    setattr(model, FLOAT32_HEAD, True)
    round_frozen_layers(model, "bf16", head=False)
    ids, rows, columns = torch.tensor([[3, 4, 5, 6]]), torch.tensor([0, 0]), torch.tensor([2, 3])
    with arithmetic("bf16", model):
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[rows, columns]
        found = read_out(model, ids, rows, columns, dict)
    weight = model.get_output_embeddings().weight
    assert weight.dtype == found.dtype == torch.float32
    torch.testing.assert_close(found, hidden.float() @ weight.T, rtol=1e-5, atol=1e-6)
    assert not torch.equal(found, found.bfloat16().float())
    setattr(model, FLOAT32_HEAD, False)
    with arithmetic("bf16", model):
        assert read_out(model, ids, rows, columns, dict).dtype == torch.bfloat16


def served(learner: dict[str, Any] | None = None, **vllm: Any) -> Settings:
    return Settings.model_validate(
        {"policy": {"engine": "vllm"}, "learner": learner or {}, "vllm": {"python": "/v/bin/python"} | vllm}
    )


def test_servers_get_the_head_and_the_invariance_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    def command(settings: Settings) -> list[str]:
        return server_command(Path("/v/bin/python"), tmp_path, port=81, settings=settings)

    line = command(served({"float32_head": True}))
    assert line[line.index("--hf-overrides") + 1] == SERVED_HEAD
    assert "--hf-overrides" not in command(served())
    assert server_environment(served(batch_invariant=True), {})["VLLM_BATCH_INVARIANT"] == "1"
    assert "VLLM_BATCH_INVARIANT" not in server_environment(served(), {})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (served(arguments=('--hf-overrides={"head_dtype": "float32"}',)), "learner.float32_head instead"),
        (served({"float32_head": True}, arguments=("--hf-overrides={}",)), "leave one out"),
        (served(python="", batch_invariant=True), "build for CPUs"),
    ],
)
def test_a_head_of_the_servers_alone_is_refused(settings: Settings, said: str) -> None:
    (found,) = engine_conflicts(settings)
    assert said in found


def test_what_agrees_is_not_refused() -> None:
    assert not engine_conflicts(served({"float32_head": True}, batch_invariant=True))
