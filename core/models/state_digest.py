"""Digest of a learner's state: equal digests mean bit-equal weights and optimizer."""

from hashlib import sha256
from typing import Any

import torch

from hindcast.core.models.policy import weights_of
from hindcast.core.models.sharded_tensors import whole


def state_digest(model: Any, optimizer: torch.optim.Optimizer | None = None) -> str:
    """Compute the sha256 over names and bytes of all weights and optimizer tensors, sorted; 64 hexadecimal characters.

    Optimizer state is named by parameter, so that the order of parameter groups does not matter.
    """
    state = sha256()
    for name, value in weights_of(model).items():
        _add(state, f"weights/{name}", value)
    if optimizer is not None:
        for name, value in optimizer_tensors(model, optimizer).items():
            _add(state, f"optimizer/{name}", value)
    return state.hexdigest()


def optimizer_tensors(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the optimizer's tensors by `<parameter>/<key>`, sorted, as a checkpoint stores them."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors = {
        f"{names[id(parameter)]}/{key}": value.detach()
        for parameter, entries in optimizer.state.items()
        for key, value in entries.items()
        if isinstance(value, torch.Tensor)
    }
    return dict(sorted(tensors.items()))


def _add(state: Any, name: str, value: torch.Tensor) -> None:
    header = f"{name} {value.dtype} {list(value.shape)}\n".encode()
    state.update(len(header).to_bytes(4, "little"))
    state.update(header)
    state.update(whole(value).contiguous().view(-1).view(torch.uint8).numpy())
