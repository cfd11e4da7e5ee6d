"""What making the learner's model takes, in a fresh process, and that its weights are those of the file to the bit."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from fakes.tiny_policy import LLAMA, write_tiny_policy
from hindcast.core.models.adapter import add_adapter, initialize_adapter
from hindcast.core.models.arithmetic import arithmetic, round_frozen_layers
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import WEIGHTS, load_policy, save_weights, state_digest
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.store import BlobStore

pytestmark = pytest.mark.torch

LOADING = Path(__file__).parents[1] / "processes" / "loading_process.py"
WIDE = LLAMA | {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 8,
    "num_hidden_layers": 3,
}
"""50 million parameters: 200 MB in float32."""
SPARE = 30_000_000
"""Bytes for a few large tensors of one layer, and for what the allocator keeps."""


class Large:
    """A policy of 200 MB, and its base weights in a blob store."""

    def __init__(self, folder: Path) -> None:
        self.folder = write_tiny_policy(folder / "policy", llama=True)
        (self.folder / "config.json").write_text(json.dumps(WIDE))
        torch.manual_seed(1)
        self.model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(self.folder)).eval()
        save_weights(self.model, self.folder / WEIGHTS)
        self.size = (self.folder / WEIGHTS).stat().st_size
        self.blobs = folder / "blobs"
        self.base: BlobRef = BlobStore(self.blobs).put((self.folder / WEIGHTS).read_bytes())

    def made(self, *, ranks: int = 1, **learner: Any) -> list[dict[str, Any]]:
        """What each process that made the learner's model printed."""
        settings = {"packed_sequences": False, "shared_prefixes": False, "processes": ranks} | learner
        command = [str(LOADING), str(self.folder), str(self.blobs), f"{self.base.sha256}:{self.base.size}"]
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        done = subprocess.run(
            [sys.executable, *torchrun, *command, json.dumps(settings)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            timeout=240,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Large:
    return Large(tmp_path_factory.mktemp("large"))


@pytest.mark.timeout(300)
def test_the_learner_holds_one_copy_of_the_weights_while_it_loads_them(large: Large) -> None:
    (alone,) = large.made()
    assert large.size > 190_000_000
    assert alone["bytes"] < 1.3 * large.size
    assert alone["digest"] == state_digest(large.model)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_each_rank_holds_its_shards_alone_while_it_loads_them(large: Large) -> None:
    ranks = large.made(ranks=2)
    assert [one["digest"] for one in ranks] == [state_digest(large.model)] * 2
    assert all(one["bytes"] < large.size / 2 + 2 * SPARE for one in ranks)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_the_base_of_an_adapter_takes_two_bytes_a_parameter_in_bf16(large: Large) -> None:
    (rounded,) = large.made(lora_rank=4, precision="bf16")
    assert rounded["bytes"] < large.size / 2 + 2 * SPARE
    (full,) = large.made(lora_rank=4)
    assert full["digest"] == rounded["digest"]  # of the adapter
    assert full["bytes"] > 0.9 * large.size


def test_weights_that_are_loaded_one_by_one_are_those_that_torch_loads(tmp_path: Path) -> None:
    """Also of a model with a tied head, and with buffers that no file holds."""
    for llama in (False, True):
        folder = write_tiny_policy(tmp_path / str(llama), llama=llama)
        expected: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        expected.load_state_dict(load_file(folder / WEIGHTS), strict=False)
        found = load_policy(folder).model
        assert state_digest(found) == state_digest(expected)
        for (name, own), (other, theirs) in zip(found.named_buffers(), expected.named_buffers(), strict=True):
            assert name == other
            assert torch.equal(own, theirs)
        assert not any(value.is_meta for value in found.parameters())


@pytest.mark.parametrize("llama", [False, True])
def test_rounded_frozen_layers_compute_the_bits_of_full_ones(tmp_path: Path, *, llama: bool) -> None:
    """Of log-probabilities and of the adapter's gradient."""
    folder = write_tiny_policy(tmp_path, llama=llama)
    samples = [SampleToScore(list(range(3, 40)), [7, 8, 9]), SampleToScore(list(range(5, 20)), [4, 2])]
    found = []
    for rounds in (False, True):
        model = load_policy(folder).model
        add_adapter(model, rank=4, alpha=8, targets=["all-linear"])
        initialize_adapter(model, seed=3)
        if rounds:
            round_frozen_layers(model, "bf16")
            assert any(value.dtype == torch.bfloat16 for value in model.parameters())
        with torch.no_grad():  # B is zero at first, and with it A's gradient
            for name, value in model.named_parameters():
                if ".lora_B." in name:
                    value.fill_(0.01)
        with arithmetic("bf16", model):
            scores = torch.cat(score(model, samples, temperature=1.0, tokens_per_forward=256))
        scores.sum().backward()
        gradient = [one.grad for one in model.parameters() if one.requires_grad]
        found.append([scores.detach(), *(one for one in gradient if one is not None)])
    assert len(found[0]) > 10
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_threads_make_models_at_once(tmp_path: Path) -> None:
    """torch's hooks for new parameters are one list for all threads."""
    folder = write_tiny_policy(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: load_policy(folder).model, range(64)))
    assert not any(value.is_meta for model in made for value in model.parameters())
    assert not torch.nn.Linear(2, 2).weight.is_meta
