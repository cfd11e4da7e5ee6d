"""Every tensor of a model that computes on a GPU is made there: tried on torch's meta device, which needs no GPU.

A meta tensor has a shape and no content, and an operation on it and a tensor of the CPU raises as it would with a GPU.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.engines.lfm2 import Lfm2Slots
from hindcast.actors.engines.slots import CacheSlots
from hindcast.core.errors import SettingsError
from hindcast.core.grammar.allowed_tokens import pack_allowed
from hindcast.core.models.arithmetic import policy_device, precision_for, require_computing
from hindcast.core.models.auxiliary import Critic
from hindcast.core.models.logprobs import SampleToScore, score_pack
from hindcast.core.models.token_trees import reach_back, token_trees
from hindcast.core.settings.schema import LearnerSettings, PolicySettings
from hindcast.core.settings.section import RECORDED
from hindcast.events.catalogue.run import Fingerprint
from hindcast.learner.numerics import fingerprint, precision_then

pytestmark = pytest.mark.torch

GPU = torch.device("meta")
"""Stands for a GPU."""


MIXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.copy_.default)
"""Operations that take tensors of two devices: indices may be on the CPU."""


class _OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of two devices, as a GPU does; copies to the CPU have no content."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        tensors = [one for one in tree_leaves((args, given)) if isinstance(one, torch.Tensor) and one.ndim]
        if func is torch.ops.aten._to_copy.default and given.get("device") == torch.device("cpu"):
            return torch.zeros(args[0].shape, dtype=given.get("dtype") or args[0].dtype)
        if func is torch.ops.aten._local_scalar_dense.default:
            return False
        if len({one.device for one in tensors}) > 1 and func not in MIXING:
            raise RuntimeError(f"{func} is given tensors of several devices")
        return func(*args, **given)


@contextmanager
def model_on_gpu(folder: Path) -> Iterator[Any]:
    """A model of the folder's shape on a device other than the CPU."""
    config = AutoConfig.from_pretrained(folder)
    with GPU:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    assert all(value.device == GPU for value in (*model.parameters(), *model.buffers()))
    with _OneDevice():
        yield model


def test_a_tensor_of_the_cpu_would_be_noticed(tmp_path: Path) -> None:
    with (
        model_on_gpu(write_tiny_policy(tmp_path)) as model,
        pytest.raises(RuntimeError, match="several devices"),
    ):
        model(input_ids=torch.tensor([[3, 4]]))


@pytest.mark.parametrize("llama", [False, True])
def test_slots_compute_where_the_model_is(tmp_path: Path, *, llama: bool) -> None:
    folder = write_tiny_policy(tmp_path, llama=llama)
    for kind in (CacheSlots,) if llama else (CacheSlots, Lfm2Slots):
        with model_on_gpu(folder) as model, torch.no_grad():
            slots = kind(model, 3)
            for prompt in ((3, 4, 5), (6, 7), (8, 9, 3, 4)):
                states, logits = slots.prefill(prompt)
                assert logits.device == GPU
                slots.admit(states, len(prompt))
            assert slots.step(torch.tensor([5, 6, 7])).device == GPU
            slots.release(0)
            assert slots.step(torch.tensor([5, 6])).shape == (2, model.config.vocab_size)


@pytest.mark.parametrize("form", ["padded", "joined", "trees"])
def test_log_probabilities_are_computed_where_the_model_is(tmp_path: Path, form: str) -> None:
    folder = write_tiny_policy(tmp_path, llama=form == "joined")
    allowed = pack_allowed(
        [np.ones(json.loads((folder / "config.json").read_text())["vocab_size"], bool)] * 2
    )
    samples = [SampleToScore([3, 4, 5, 6], [7, 8], allowed), SampleToScore([3, 4, 5, 9], [2])]
    with model_on_gpu(folder) as model:
        trees = (
            token_trees(
                [one.prompt_ids for one in samples],
                [one.action_ids for one in samples],
                max_tokens=10**6,
                reach=reach_back(model),
            )
            if form == "trees"
            else ()
        )
        with torch.no_grad():
            scores = score_pack(model, samples, temperature=1.0, joined=form == "joined", trees=trees)
        assert [len(one) for one in scores] == [2, 1]


def test_a_critic_computes_where_its_policy_is(tmp_path: Path) -> None:
    with model_on_gpu(write_tiny_policy(tmp_path)) as model:
        critic = Critic(model, "scalar")
        assert critic.head.weight.device == GPU
        assert critic([[3, 4, 5], [6, 7]]).shape == (2, 1, 2)


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, *, bf16: bool, count: int = 1) -> None:
    """As if torch saw GPUs."""
    for name, value in {
        "is_available": True,
        "current_device": 0,
        "device_count": count,
        "get_device_name": "Tesla T4",
    }.items():
        monkeypatch.setattr(f"torch.cuda.{name}", lambda *_, value=value: value)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: bf16)


def test_precision_follows_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert precision_for("auto", torch.device("cpu")) == "float32"
    on_a_gpu(monkeypatch, bf16=True)
    assert precision_for("auto", torch.device("cuda")) == "bf16"
    assert precision_for("auto", torch.device("cpu")) == "float32"
    assert precision_for("float32", torch.device("cuda")) == "float32"
    on_a_gpu(monkeypatch, bf16=False)
    assert precision_for("auto", torch.device("cuda")) == "float32"


@pytest.mark.parametrize(
    ("learner", "processes", "said"),
    [
        ({"precision": "bf16"}, 1, r"bf16', which Tesla T4 does not compute"),
        ({"processes": 4}, 4, r"4 processes here with a GPU.each, and torch sees 1. Set it to 1"),
    ],
)
def test_what_the_gpus_cannot_do_is_refused_before_a_model_is_made(
    monkeypatch: pytest.MonkeyPatch, learner: dict[str, Any], processes: int, said: str
) -> None:
    on_a_gpu(monkeypatch, bf16=False)
    with pytest.raises(SettingsError, match=said):
        require_computing(LearnerSettings(**learner), processes=processes)
    require_computing(LearnerSettings(**learner, device="cpu"), processes=processes)
    require_computing(LearnerSettings(), processes=1)


def test_a_policy_s_gpu_that_is_not_there_is_named_by_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SettingsError, match=r"policy\.device = .cuda., and torch finds no GPU"):
        policy_device("cuda")
    assert policy_device("auto").type == "cpu"


def test_runs_from_before_the_settings_computed_on_the_cpu_in_float32() -> None:
    recorded = LearnerSettings.model_validate({}, context=RECORDED)
    assert (recorded.device, recorded.precision) == ("cpu", "float32")
    assert (LearnerSettings().device, LearnerSettings().precision) == ("auto", "auto")
    assert PolicySettings.model_validate({}, context=RECORDED).device == "cpu"
    assert PolicySettings().device == "auto"


def test_a_recomputation_takes_the_precision_that_auto_chose() -> None:
    here = fingerprint(1, precision="auto")
    assert here == fingerprint(1)  # of a CPU it says nothing
    assert precision_then(here, "auto") == "auto"
    there = Fingerprint(
        **{name: getattr(here, name) for name in here.__struct_fields__} | {"details": {"precision": "bf16"}}
    )
    assert precision_then(there, "auto") == "bf16"
