"""Sums over ranks in a fixed order, so that one process can compute them again, bit for bit (`learner.exact_ranks`).

Floating-point addition is not associative, and a collective chooses its own order. Here gradients are added in rank order. The
norm is the correctly rounded sum of the squares of each rank's shard of each parameter, so that no order matters.
"""

from collections.abc import Iterable, Sequence
from math import fsum, isfinite, sqrt
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

SMALL = 1e-6
"""Added to a norm before it divides, as in `torch.nn.utils.clip_grad_norm_`."""


class OrderedReduceScatter:
    """FSDP2's reduce-scatter: an all-to-all, then a sum in rank order. It sends what a ring sends, and needs a second buffer.

    See `torch.distributed.fsdp.FSDPModule.set_custom_reduce_scatter`.
    """

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Make a buffer for input or output."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,  # [n]: this rank's part of the sum
        input_tensor: torch.Tensor,  # [ranks · n]
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Sum this rank's part of all inputs into the output."""
        assert op == dist.ReduceOp.SUM, f"FSDP asks for {op}, although gradients are sums"
        assert not async_op
        parts = torch.empty_like(input_tensor)
        dist.all_to_all_single(parts, input_tensor, group=group)
        first, *rest = parts.view(group.size(), -1)
        output_tensor.copy_(first)
        for part in rest:
            output_tensor.add_(part)


def square_sums(shards: Iterable[torch.Tensor]) -> NDArray[np.float64]:
    """Sum of squares of each shard. Each is copied before: on a GPU the order of a sum depends on the tensor's address."""
    sums = [shard.to(torch.float64, copy=True).square_().sum() for shard in shards]
    squares: NDArray[np.float64] = torch.stack(sums).cpu().numpy() if sums else np.zeros(0)
    return squares


def scale_down(gradients: Iterable[torch.Tensor], squares: NDArray[np.float64], largest: float) -> float:
    """Scale gradients to a norm of at most `largest`, given the sums of their squares; returns the norm before."""
    norm = sqrt(fsum(squares.ravel().tolist()))
    if isfinite(norm) and (factor := largest / (norm + SMALL)) < 1:
        for gradient in gradients:
            gradient.mul_(factor)
    return norm
