"""The digest that says whether two learners are in the same state: weights and optimiser, bit by bit."""

from hashlib import sha256
from typing import Any

import torch

from hindcast.core.models.policy import weights_of
from hindcast.core.models.sharded_tensors import whole


def state_digest(model: Any, optimizer: torch.optim.Optimizer | None = None) -> str:
    """sha256 over names and raw bytes of all weights and optimiser tensors, in sorted order; 64 hexadecimal characters.

    Optimiser state is named by the parameter's name, so that the order of parameter groups does not matter.
    """
    state = sha256()
    for name, value in weights_of(model).items():
        _add(state, f"weights/{name}", value)
    if optimizer is not None:
        for name, value in optimizer_tensors(model, optimizer).items():
            _add(state, f"optimizer/{name}", value)
    return state.hexdigest()


def optimizer_tensors(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Tensors of the optimiser's state as `<parameter>/<key>`, sorted: what a checkpoint stores."""
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
