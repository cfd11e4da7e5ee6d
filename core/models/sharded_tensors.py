"""Sharded tensors: tensors of which each process holds a part (FSDP2's DTensor)."""

from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(value: torch.Tensor) -> torch.Tensor:
    """Gather the whole tensor on the CPU. For a sharded one, every process must call this, in the same order."""
    full: Any = value.full_tensor() if isinstance(value, DTensor) else value
    tensor: torch.Tensor = full.cpu()
    return tensor


def is_split(value: torch.Tensor) -> bool:
    """Whether the tensor is sharded, so that this process may hold only a part."""
    return isinstance(value, DTensor)


def own_rows(value: torch.Tensor) -> torch.Tensor:
    """Return this process's rows of a sharded tensor, on the CPU; those of all ranks in order make up the whole."""
    local: Any = value
    rows: torch.Tensor = local.to_local().cpu()
    return rows


def fill(target: torch.Tensor, content: torch.Tensor) -> None:
    """Copy a whole tensor into one that may be sharded: each process keeps its part."""
    with torch.no_grad():
        target.copy_(shared_like(target, content))


def shared_like(target: torch.Tensor, content: torch.Tensor) -> torch.Tensor:
    """Shard a whole tensor like another one, if that is sharded; every process passes the same content."""
    if not isinstance(target, DTensor):
        return content
    return distribute_tensor(
        content.to(target.device), target.device_mesh, target.placements, src_data_rank=None
    )
