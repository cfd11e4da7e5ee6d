"""Data-parallel ranks: one process that computes updates, or several that each compute a part of every update.

Several processes hold the model, its gradient and its optimizer state in equal shards (FSDP2, `torch.distributed.fsdp`).
Each reads other passes of a batch, a layer's weights are gathered while needed, and gradients are summed. The sum has
another order than in one process, so results agree to rounding, not to the bit. The same number of processes on the same
machines gives the same bits.
"""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from transformers.modeling_layers import GradientCheckpointingLayer

from hindcast.core.errors import DiskFull
from hindcast.core.models.arithmetic import device_of
from hindcast.core.models.logprobs import read_out
from hindcast.events.envelope import BlobRef

T = TypeVar("T")


class Ranks:
    """The processes that compute an update together; this class: one process alone."""

    def own(self, passes: Sequence[T]) -> list[tuple[T, bool]]:
        """This process's passes; every process has equally many. The flag is False for a repeated pass, which does not count."""
        return [(one, True) for one in passes]

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum the values over all processes."""
        return values

    def spread(self, model: Any) -> Any:
        """Shard a model over the processes; before, all hold the same whole one."""
        return model

    def stored(self, put: Callable[[], BlobRef]) -> tuple[BlobRef, ...]:
        """Store each process's part and return all references. Raises DiskFull in all processes if one has no room."""
        return (put(),)


class DistributedRank(Ranks):
    """One of several processes that do the same in the same order. `torch.distributed` is set up before."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def own(self, passes: Sequence[T]) -> list[tuple[T, bool]]:
        """See `Ranks.own`: every `size`-th pass, so that long and short ones are distributed evenly."""
        rounds = -(-len(passes) // self.size)
        dealt = [(one, True) for one in passes[self.rank :: self.size]]
        return dealt + [(one, False) for one in passes[:1]] * (rounds - len(dealt))  # none at all: no rounds

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Ranks.add_up`."""
        total = torch.from_numpy(values.copy())
        dist.all_reduce(total)
        found: NDArray[np.float64] = total.numpy()
        return found

    def spread(self, model: Any) -> Any:
        """See `Ranks.spread`: layer by layer, so that at most one whole layer is in memory."""
        mesh = init_device_mesh(device_of(model).type, (self.size,))
        for layer in [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        for part in model.modules():
            if isinstance(part, FSDPModule):  # gradients are sums: shares divide already
                part.set_force_sum_reduction_for_comms(True)
                part.set_gradient_divide_factor(1.0)
        model.read_out = MethodType(read_out, model)
        register_fsdp_forward_method(model, "read_out")
        return model

    def stored(self, put: Callable[[], BlobRef]) -> tuple[BlobRef, ...]:
        """See `Ranks.stored`. Exchanged as numbers, without pickles: a size (0: no room) and 32 bytes of digest."""
        told = np.zeros((self.size, 33))
        full: DiskFull | None = None
        try:
            ref = put()
            told[self.rank] = [ref.size, *bytes.fromhex(ref.sha256)]
        except DiskFull as error:
            full = error
        told = self.add_up(told)
        if full is not None:
            raise full
        if lacking := [rank for rank in range(self.size) if not told[rank][0]]:
            raise DiskFull(
                f"process {lacking[0]} of the learner has no room for its part of a checkpoint; its own log lines name the "
                "disk. Nothing is lost: make room there, and the run continues."
            )
        return tuple(BlobRef(bytes(row[1:].astype(np.uint8)).hex(), int(row[0])) for row in told)

    def unable(self, *, able: bool) -> list[int]:
        """Ranks that report that they cannot continue; every process gets the same list."""
        told = np.zeros(self.size)
        told[self.rank] = not able
        return np.flatnonzero(self.add_up(told)).tolist()
