"""Device and precision of a model's computations.

`bf16` rounds the factors and results of matrix products, so also the logits, which are a product's result. Weights, gradients
and everything after the logits stay float32 (mixed precision, Micikevicius et al. 2018, arXiv 1710.03740; bfloat16 needs no
loss scaling).
"""

from contextlib import AbstractContextManager
from typing import Any

import torch

from hindcast.core.errors import SettingsError
from hindcast.core.settings.computing import Device, Precision

APART: dict[Precision, float] = {"float32": 1e-3, "bf16": 0.05}
"""Least difference by precision, as a share of the largest number, that rounding does not explain."""


def device_for(wanted: Device) -> torch.device:
    """Choose the device. `cuda` without a GPU gives the CPU; `require_device` refuses that case."""
    found = torch.cuda.is_available() and wanted != "cpu"
    return torch.device("cuda", torch.cuda.current_device()) if found else torch.device("cpu")


def require_device(wanted: Device) -> None:
    """Raise SettingsError if the setting demands a GPU and there is none."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            "learner.device = 'cuda', and torch finds no GPU here. Install a torch that was built for this machine's GPU, or "
            "set learner.device to auto"
        )


def device_of(model: Any) -> torch.device:
    """Return the device of a model's weights."""
    found: torch.device = next(model.parameters()).device
    return found


def arithmetic(precision: Precision, model: Any) -> AbstractContextManager[Any]:
    """Set the precision of the model's forward passes within the block; their gradients follow."""
    return torch.autocast(device_of(model).type, dtype=torch.bfloat16, enabled=precision == "bf16")


def recompute_activations(model: Any) -> None:
    """Switch on gradient checkpointing: each layer keeps only its input and is recomputed for its gradient.

    The model stays in evaluation mode, except for the flag of each layer that switches checkpointing on.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = True
