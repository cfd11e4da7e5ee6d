"""Tensors that several processes hold parts of."""

from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(value: torch.Tensor) -> torch.Tensor:
    """The whole tensor, on the CPU. Of one that is shared out, every process must ask for it, in the same order."""
    full: Any = value.full_tensor() if isinstance(value, DTensor) else value
    found: torch.Tensor = full.cpu()
    return found


def is_split(value: torch.Tensor) -> bool:
    """Whether this process may hold a part of it alone."""
    return isinstance(value, DTensor)


def own_rows(value: torch.Tensor) -> torch.Tensor:
    """This process's rows of a tensor that is split, on the CPU: those of all processes, by rank, make up the whole one."""
    own: Any = value
    found: torch.Tensor = own.to_local().cpu()
    return found


def fill(own: torch.Tensor, content: torch.Tensor) -> None:
    """Copy a whole tensor into one that may be shared out: each process keeps its part."""
    with torch.no_grad():
        own.copy_(shared_like(own, content))


def shared_like(own: torch.Tensor, content: torch.Tensor) -> torch.Tensor:
    """A whole tensor, shared out as another one is, where that is; every process has the same content."""
    if not isinstance(own, DTensor):
        return content
    return distribute_tensor(content.to(own.device), own.device_mesh, own.placements, src_data_rank=None)
