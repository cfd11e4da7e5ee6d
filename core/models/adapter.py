"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685) in the layout of `peft`, trained while the weights are frozen.

    W = W0 + alpha / rank * B A,   B zero before the first update

A model that trains has the adapter as layers; a model that only samples has it merged into its weights. File format:
`core.models.adapter_file`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from hindcast.core.errors import ModelFileError
from hindcast.core.models.adapter_file import CONFIG
from hindcast.core.models.sharded_tensors import fill, whole
from hindcast.core.models.vision import TOWER, reads_pictures

PREFIX = "base_model.model."
"""Prefix of every name in peft's files."""
NAME = "default"
"""peft's name of an adapter in a model, which its files leave out."""
ALL_LINEAR = "all-linear"
"""Target of every linear layer except the head."""


def add_adapter(model: Any, *, rank: int, alpha: int, targets: Sequence[str]) -> None:
    """Add an adapter to a model and freeze everything else. `initialize_adapter` gives it its values.

    `targets`: names of linear layers, such as `q_proj`, or `ALL_LINEAR`.

    Raises:
        ModelFileError: the model has no layers with such names.
    """
    from peft import LoraConfig, inject_adapter_in_model  # takes seconds to load

    target_modules = ALL_LINEAR if ALL_LINEAR in targets else sorted(targets)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=target_modules,
        lora_dropout=0.0,
        exclude_modules=rf"(.*\.)?{TOWER}\..*" if reads_pictures(model) else None,
    )
    try:
        inject_adapter_in_model(config, model)
    except ValueError as error:
        raise ModelFileError(
            f"learner.lora_targets = {list(targets)} do not fit this model: {error}"
        ) from error
    model.eval()
    for name, value in model.named_parameters():
        value.requires_grad_(is_adapter_name(name))
    model.adapter_config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted({name.split(".lora_")[0].rpartition(".")[2] for name in adapter_of(model)}),
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "inference_mode": True,
        "base_model_name_or_path": "",
    }


def initialize_adapter(model: Any, *, seed: int) -> None:
    """Set the values of an adapter before its first update: A as peft draws it, from a generator that is the same on every
    machine, and B to zero.
    """
    random = np.random.default_rng(seed)
    for name, value in adapter_of(model).items():
        if ".lora_A." in name:
            bound = value.shape[1] ** -0.5
            sample = random.uniform(-bound, bound, size=tuple(value.shape))
            fill(value, torch.from_numpy(sample.astype(np.float32)))
        else:
            fill(value, torch.zeros(tuple(value.shape)))


def adapter_of(model: Any) -> dict[str, torch.Tensor]:
    """Return the adapter's tensors by name in the model, sorted; empty if it has none."""
    return {name: value.detach() for name, value in sorted(model.named_parameters()) if is_adapter_name(name)}


def is_adapter_name(name: str) -> bool:
    """Whether a tensor of this name belongs to an adapter."""
    return ".lora_A." in name or ".lora_B." in name


def base_name(name: str) -> str:
    """Return the name that a tensor of the model has without an adapter: peft moves an adapted layer's own one level down."""
    return name.replace(".base_layer.", ".")


def encode_adapter(model: Any) -> bytes:
    """Encode a model's adapter as the bytes of its file; the same adapter gives the same bytes."""
    tensors = {
        PREFIX + name.replace(f".{NAME}.", "."): whole(value).contiguous()
        for name, value in adapter_of(model).items()
    }
    content: bytes = save(tensors, {CONFIG: json.dumps(model.adapter_config, sort_keys=True)})
    return content


def load_adapter(
    model: Any, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any], path: Path
) -> None:
    """Load an adapter: into the model's adapter layers if it has some, else merged into the weights.

    Raises:
        ModelFileError: the adapter belongs to another model.
    """
    if adapter := adapter_of(model):
        names = {name: PREFIX + name.replace(f".{NAME}.", ".") for name in adapter}
        if any(
            names[name] not in tensors or tensors[names[name]].shape != adapter[name].shape
            for name in adapter
        ):
            raise ModelFileError(f"the adapter in {path} does not fit the model's own (learner.lora_rank)")
        for name, value in adapter.items():
            fill(value, tensors[names[name]])
        return
    weights = dict(model.named_parameters())
    layers = sorted({name.removeprefix(PREFIX).partition(".lora_")[0] for name in tensors})
    if unknown := [layer for layer in layers if f"{layer}.weight" not in weights]:
        raise ModelFileError(
            f"the adapter in {path} is for layers that the model lacks: {', '.join(unknown[:3])}"
        )
    if problems := _misfits(
        tensors, {layer: weights[f"{layer}.weight"] for layer in layers}, int(config["r"])
    ):
        raise ModelFileError(f"the adapter in {path} does not fit the model: {'; '.join(problems[:3])}")
    unmerge(model)
    scale = float(config["lora_alpha"]) / int(config["r"])
    with torch.no_grad():
        for layer in layers:
            weight = weights[f"{layer}.weight"]
            model.unmerged[layer] = weight.detach().clone()
            rise = tensors[f"{PREFIX}{layer}.lora_B.weight"] @ tensors[f"{PREFIX}{layer}.lora_A.weight"]
            weight.add_(rise.to(weight), alpha=scale)


def _misfits(
    tensors: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor], rank: int
) -> list[str]:
    """List what is wrong with an adapter's tensors: each layer has A  # [rank, columns] and B  # [rows, rank]."""
    expected = {
        f"{PREFIX}{layer}.lora_{factor}.weight": shape
        for layer, weight in weights.items()
        for factor, shape in (("A", [rank, weight.shape[-1]]), ("B", [weight.shape[0], rank]))
    }
    problems = [f"{name} is missing" for name in expected if name not in tensors]
    problems += [
        f"{name} has shape {list(tensors[name].shape)}, the model wants {shape}"
        for name, shape in expected.items()
        if name in tensors and list(tensors[name].shape) != shape
    ]
    return [*problems, *(f"{name} is no part of an adapter" for name in tensors if name not in expected)]


def unmerge(model: Any) -> None:
    """Undo a merge exactly, from the original weights that `load_adapter` kept."""
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for layer, value in getattr(model, "unmerged", {}).items():
            weights[f"{layer}.weight"].copy_(value)
    model.unmerged = {}


@contextmanager
def adapter_off(model: Any) -> Iterator[None]:
    """Disable the model's adapter within the block."""
    from peft.tuners.lora import LoraLayer

    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:  # by its scale, so that the state afterwards equals that before
        layer.set_scale(NAME, 0)
    try:
        yield
    finally:
        for layer in layers:
            layer.set_scale(NAME, 1)
