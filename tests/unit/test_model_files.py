import json
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.core.errors import ModelFileError
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import (
    HASHERS,
    WEIGHTS,
    encode_weights,
    load_policy,
    load_weights,
    save_weights,
    state_digest,
    weights_of,
)

pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_policy(tmp_path / "policy")


def test_the_shipped_policy_loads_in_full_precision_and_small_files() -> None:
    policy = load_policy(base_policy_folder())
    assert all(value.dtype == torch.float32 for value in policy.model.parameters())
    assert not policy.model.training
    assert policy.model.get_output_embeddings().weight is policy.model.get_input_embeddings().weight
    assert sum(file.stat().st_size for file in base_policy_folder().iterdir()) < 8_000_000


def test_a_tied_head_is_the_embedding_whatever_head_a_file_has_in_excess(folder: Path) -> None:
    """Many published models hold such a head, which training would leave behind."""
    embedding = load_policy(folder).model.get_input_embeddings().weight
    tensors = load_file(folder / WEIGHTS) | {"lm_head.weight": torch.full_like(embedding, 7.0).detach()}
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    model = load_policy(folder).model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    torch.testing.assert_close(model.get_output_embeddings().weight, embedding)
    assert "lm_head.weight" not in load(encode_weights(model))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", WEIGHTS])
def test_a_folder_that_lacks_a_file_is_refused_by_the_file_s_name(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelFileError, match=name.replace(".", r"\.")):
        load_policy(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", WEIGHTS])
def test_a_damaged_file_is_refused_by_its_name(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelFileError, match=name.replace(".", r"\.")):
        load_policy(folder)


def test_a_folder_of_another_kind_of_model_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "resnet"}))
    with pytest.raises(ModelFileError, match="no causal model"):
        load_policy(folder)


def test_weights_of_another_shape_change_nothing(folder: Path, tmp_path: Path) -> None:
    model = load_policy(folder).model
    before = encode_weights(model)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 80}))
    save_weights(tiny_model(folder, seed=3), tmp_path / "wide.safetensors")
    with pytest.raises(ModelFileError, match="has shape"):
        load_weights(model, tmp_path / "wide.safetensors")
    assert encode_weights(model) == before


def test_saving_and_loading_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    model = tiny_model(folder, seed=4)
    save_weights(model, tmp_path / "weights.safetensors")
    other = load_policy(folder).model
    assert state_digest(other) != state_digest(model)
    load_weights(other, tmp_path / "weights.safetensors")
    assert state_digest(other) == state_digest(model)
    assert encode_weights(other) == (tmp_path / "weights.safetensors").read_bytes()


def test_loading_rounded_weights_twice_gives_the_same_bits() -> None:
    first, second = (load_policy(base_policy_folder()).model for _ in range(2))
    assert state_digest(first) == state_digest(second)
    assert all(torch.equal(value, value.bfloat16().float()) for value in weights_of(first).values())


@pytest.mark.parametrize("arithmetic", [1, 2])
def test_the_state_digest_sees_one_bit_of_weights_and_of_optimiser_state(
    folder: Path, arithmetic: int
) -> None:
    digest = partial(state_digest, arithmetic=arithmetic)
    model = tiny_model(folder, seed=5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    digests = {digest(model, optimizer)}
    sum(value.sum() for value in model.parameters()).backward()
    with torch.no_grad():
        first = next(model.parameters())
        first.view(-1)[0] = torch.nextafter(first.view(-1)[0], torch.tensor(10.0))
    digests.add(digest(model, optimizer))
    optimizer.step()
    digests.add(digest(model, optimizer))
    state = optimizer.state[first]
    state["exp_avg"].view(-1)[3] += 1.0
    digests.add(digest(model, optimizer))
    state["step"] += 1
    digests.add(digest(model, optimizer))
    assert len(digests) == 5


def test_a_digest_of_version_two_is_that_of_the_tensors_digests_in_order(folder: Path) -> None:
    """Whatever thread is done first: there are more tensors than threads."""
    model = tiny_model(folder, seed=5)
    expected = sha256()
    for name, value in weights_of(model).items():
        header = f"weights/{name} {value.dtype} {list(value.shape)}\n".encode()
        content = len(header).to_bytes(4, "little") + header + value.contiguous().numpy().tobytes()
        expected.update(sha256(content).digest())
    assert len(weights_of(model)) > HASHERS
    assert state_digest(model, arithmetic=2) == expected.hexdigest() != state_digest(model)
