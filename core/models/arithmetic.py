"""On which device a model computes, and how exactly its products of matrices are taken.

Weights, gradients and whatever follows the last layer stay float32: `bf16` rounds the factors of products alone, as
mixed precision does (Micikevicius et al. 2018, arXiv 1710.03740; bfloat16 needs no scaling of the loss).
"""

from contextlib import AbstractContextManager
from typing import Any

import torch

from hindcast.core.errors import SettingsError
from hindcast.core.settings.computing import Device, Precision


def device_for(wanted: Device) -> torch.device:
    """Where to compute. `cuda` without a GPU is the CPU here: whoever must not do so asks `require_device` first."""
    found = torch.cuda.is_available() and wanted != "cpu"
    return torch.device("cuda", torch.cuda.current_device()) if found else torch.device("cpu")


def require_device(wanted: Device) -> None:
    """Raise SettingsError where a GPU is asked for and there is none."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            "learner.device = 'cuda', and torch finds no GPU here. Install a torch that was built for this machine's GPU, or "
            "set learner.device to auto"
        )


def device_of(model: Any) -> torch.device:
    """Where a model's weights are."""
    found: torch.device = next(model.parameters()).device
    return found


def arithmetic(precision: Precision, model: Any) -> AbstractContextManager[Any]:
    """Within it, forward passes of the model take their products so; their gradients follow."""
    return torch.autocast(device_of(model).type, dtype=torch.bfloat16, enabled=precision == "bf16")


def recompute_activations(model: Any) -> None:
    """Gradient checkpointing from now on: each layer keeps its input alone, and is computed again for its gradient.

    The model stays in evaluation mode: of each layer only the flag that switches checkpointing on says otherwise.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = True
