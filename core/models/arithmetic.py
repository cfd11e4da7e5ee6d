"""Device and precision of a model's computations.

`bf16` rounds the factors and results of matrix products, so also the logits, which are a product's result. Weights, gradients
and everything after the logits stay float32 (mixed precision, Micikevicius et al. 2018, arXiv 1710.03740; bfloat16 needs no
loss scaling).
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from hindcast.core.errors import SettingsError
from hindcast.core.settings.computing import ComputingSettings, Device, Precision, WantedPrecision

APART: dict[Precision, float] = {"float32": 1e-3, "bf16": 0.05}
"""Least difference by precision, as a share of the largest number, that rounding does not explain."""


def device_for(setting: Device) -> torch.device:
    """Choose the device. `cuda` without a GPU gives the CPU; `require_device` refuses that case."""
    use_cuda = torch.cuda.is_available() and setting != "cpu"
    return torch.device("cuda", torch.cuda.current_device()) if use_cuda else torch.device("cpu")


def precision_for(setting: WantedPrecision, device: torch.device) -> Precision:
    """Choose the precision. `auto` is `bf16` on a GPU that computes in it itself (compute capability 8.0 or newer)."""
    if setting != "auto":
        return setting
    return "bf16" if device.type == "cuda" and _computes_bf16() else "float32"


def _computes_bf16() -> bool:
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def policy_device(value: Device) -> torch.device:
    """Choose the device of `policy.device`. Raises SettingsError if it demands a GPU and there is none."""
    require_device(value, setting="policy.device")
    return device_for(value)


def require_device(value: Device, *, setting: str) -> None:
    """Raise SettingsError if the setting demands a GPU and there is none."""
    if value == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            f"{setting} = 'cuda', and torch finds no GPU here. Install a torch that was built for this machine's GPU, or "
            f"set {setting} to auto"
        )


def require_computing(learner: ComputingSettings, *, processes: int) -> None:
    """Raise SettingsError if this machine cannot compute as the learner's settings demand.

    `processes`: those of the learner that are started on this machine, which have a GPU each.
    """
    require_device(learner.device, setting="learner.device")
    if device_for(learner.device).type == "cpu":
        return
    if processes > (count := torch.cuda.device_count()):
        raise SettingsError(
            f"learner.processes = {learner.processes} starts {processes} processes here with a GPU each, and torch sees {count}. Set "
            f"it to {count}, or learner.device to cpu"
        )
    if learner.precision == "bf16" and not _computes_bf16():
        raise SettingsError(
            f"learner.precision = 'bf16', which {torch.cuda.get_device_name()} does not compute. Set learner.precision to float32 "
            "or auto, or use a GPU of compute capability 8.0 or newer"
        )


def device_of(model: Any) -> torch.device:
    """Return the device of a model's weights."""
    device: torch.device = next(model.parameters()).device
    return device


def arithmetic(precision: WantedPrecision, model: Any) -> AbstractContextManager[Any]:
    """Set the precision of the model's forward passes within the block; their gradients follow."""
    device = device_of(model)
    rounds = precision_for(precision, device) == "bf16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=rounds)


def round_frozen_layers(model: Any, precision: Precision, *, head: bool = True) -> None:
    """Keep the weights of linear layers that are not trained in the format in which they are multiplied: half the memory.

    `arithmetic` would round them in each pass, so the model computes the same bits. Embeddings, norms and a head that is tied
    to the embedding stay float32. `head`: whether the head may be rounded, too.
    """
    if precision != "bf16":
        return
    kept_ids = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
    kept_ids |= set() if head else {id(model.get_output_embeddings().weight)}
    for layer in model.modules():
        parameters = list(layer.parameters(recurse=False))
        shared = any(parameter.requires_grad or id(parameter) in kept_ids for parameter in parameters)
        if type(layer) is nn.Linear and not shared:
            layer.to(torch.bfloat16)


def recompute_activations(model: Any) -> None:
    """Switch on gradient checkpointing: each layer keeps only its input and is recomputed for its gradient.

    The model stays in evaluation mode, except for the flag of each layer that switches checkpointing on.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = True
