"""One process that computes updates, or several that compute each update together, every one on a part of it.

Several hold the model, its gradient and its optimiser's state in equal parts (FSDP2, `torch.distributed.fsdp`): each
reads other passes of a batch, a layer's weights are gathered while they are needed, and gradients are added up. The sum
is that of one process in another order, so that results agree to rounding, not to the bit. With the same number of
processes on the same machines they agree to the bit.
"""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Protocol, TypeVar

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


class Ranks(Protocol):
    """Who computes."""

    def own(self, passes: Sequence[T]) -> list[tuple[T, bool]]:
        """This process's passes, equally many in each, and whether each counts: a repeated one does not."""
        ...

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of what each process found."""
        ...

    def spread(self, model: Any) -> Any:
        """Have every process hold its part of a model alone; all have the same whole one before."""
        ...

    def stored(self, put: Callable[[], BlobRef]) -> tuple[BlobRef, ...]:
        """Where each process's part is once all have put theirs. Raises DiskFull in all where one of them has no room."""
        ...


class SingleRank:
    """One process."""

    def own(self, passes: Sequence[T]) -> list[tuple[T, bool]]:
        """See `Ranks.own`: all of them."""
        return [(one, True) for one in passes]

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Ranks.add_up`."""
        return values

    def spread(self, model: Any) -> Any:
        """See `Ranks.spread`."""
        return model

    def stored(self, put: Callable[[], BlobRef]) -> tuple[BlobRef, ...]:
        """See `Ranks.stored`."""
        return (put(),)


class DistributedRank:
    """One of several, all of which do the same in the same order. `torch.distributed` is set up before."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def own(self, passes: Sequence[T]) -> list[tuple[T, bool]]:
        """See `Ranks.own`: every `size`-th, so that long and short ones are dealt out alike."""
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
        """See `Ranks.spread`: layer by layer, so that one whole layer at a time is in memory."""
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
        """See `Ranks.stored`. Told as numbers, so that nothing is pickled: a size (0: it has no room) and 32 bytes of
        digest."""
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
                f"process {lacking[0]} of the learner has no room for its part of a checkpoint; what it had to say stands in "
                "its own lines. Nothing is lost; make room there and the run goes on."
            )
        return tuple(BlobRef(bytes(row[1:].astype(np.uint8)).hex(), int(row[0])) for row in told)

    def unable(self, *, able: bool) -> list[int]:
        """Which processes say that they are not able to go on with what they were told; all hear the same."""
        told = np.zeros(self.size)
        told[self.rank] = not able
        return np.flatnonzero(self.add_up(told)).tolist()
