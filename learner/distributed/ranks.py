"""Data-parallel ranks: one process that computes updates, or several that each compute a part of every update.

Several processes hold the model, its gradient and its optimizer state in equal shards (FSDP2, `torch.distributed.fsdp`).
Each reads other passes of a batch, a layer's weights are gathered while needed, and gradients are summed. The sum has
another order than in one process, so results agree to rounding, not to the bit. The same number of processes on the same
machines gives the same bits. With `learner.exact_ranks` one process that emulates the ranks gives them, too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from hindcast.core.models.logprobs import read_out
from hindcast.core.models.sharded_tensors import whole
from hindcast.core.models.token_trees import hidden_states
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.envelope import BlobRef
from hindcast.learner.distributed.exact_sums import OrderedReduceScatter, scale_down, square_sums

T = TypeVar("T")


class Ranks:
    """The processes that compute an update together; this class: one process alone."""

    def rounds(self, passes: Sequence[T]) -> list[list[tuple[T, bool]]]:
        """This process's passes by round; in a round each rank computes one, and all have equally many rounds.

        The flag is False for a repeated pass, which does not count.
        """
        return [[(forward_pass, True)] for forward_pass in passes]

    @contextmanager
    def accumulating(self, _parameters: Sequence[torch.nn.Parameter]) -> Iterator[None]:
        """Within the block, compute the gradient of one round; it is added to that of the rounds before."""
        yield

    def clip(self, parameters: Sequence[torch.nn.Parameter], largest: float) -> float:
        """Clip the gradient to a norm of `largest`; returns the norm before."""
        return float(whole(torch.nn.utils.clip_grad_norm_(parameters, largest, foreach=False)))

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum the values over all processes."""
        return values

    def spread(self, model: Any, _device: torch.device) -> Any:
        """Shard a model over the processes, before its weights get memory on the device."""
        return model

    def store_parts(self, put: Callable[[], BlobRef]) -> tuple[BlobRef, ...]:
        """Store each process's part and return all references. Raises DiskFull in all processes if one has no room."""
        return (put(),)


class DistributedRank(Ranks):
    """One of several processes that do the same in the same order. `torch.distributed` is set up before."""

    def __init__(self, *, exact: bool = False) -> None:
        """`exact`: add in rank order, as `EmulatedRanks` does (`learner.exact_ranks`)."""
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._exact = exact

    def rounds(self, passes: Sequence[T]) -> list[list[tuple[T, bool]]]:
        """See `Ranks.rounds`: every `size`-th pass, so that long and short ones are distributed evenly."""
        return [[dealt[self.rank]] for dealt in deal(passes, self.size)]

    def clip(self, parameters: Sequence[torch.nn.Parameter], largest: float) -> float:
        """See `Ranks.clip`."""
        if not self._exact:
            return super().clip(parameters, largest)
        gradients: list[Any] = [parameter.grad for parameter in parameters if parameter.grad is not None]
        shards = [gradient.to_local() for gradient in gradients]
        squares = np.zeros((self.size, len(shards)))
        squares[self.rank] = square_sums(shards)
        return scale_down(shards, self.add_up(squares), largest)

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Ranks.add_up`."""
        total = torch.from_numpy(values.copy())
        dist.all_reduce(total)
        sums: NDArray[np.float64] = total.numpy()
        return sums

    def spread(self, model: Any, device: torch.device) -> Any:
        """See `Ranks.spread`: layer by layer, so that at most one whole layer is in memory.

        Without FSDP2's `MixedPrecisionPolicy`: it would round norms and embeddings as well, which a single process with
        autocast keeps in float32, and `EmulatedRanks` would get other bits.
        """
        mesh = init_device_mesh(device.type, (self.size,))
        for layer in [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        for module in model.modules():
            if isinstance(module, FSDPModule):  # gradients are sums: shares divide already
                module.set_force_sum_reduction_for_comms(True)
                module.set_gradient_divide_factor(1.0)
                if self._exact:
                    module.set_custom_reduce_scatter(OrderedReduceScatter())  # type: ignore[arg-type]
        for method in (read_out, hidden_states):
            setattr(model, method.__name__, MethodType(method, model))
            register_fsdp_forward_method(model, method.__name__)
        return model

    def store_parts(self, put: Callable[[], BlobRef]) -> tuple[BlobRef, ...]:
        """See `Ranks.store_parts`. Exchanged as numbers, without pickles: a size (0: no room) and 32 bytes of digest."""
        reports = np.zeros((self.size, 33))
        full: DiskFull | None = None
        try:
            ref = put()
            reports[self.rank] = [ref.size, *bytes.fromhex(ref.sha256)]
        except DiskFull as error:
            full = error
        reports = self.add_up(reports)
        if full is not None:
            raise full
        if lacking := [rank for rank in range(self.size) if not reports[rank][0]]:
            raise DiskFull(
                f"process {lacking[0]} of the learner has no room for its part of a checkpoint; its own log lines name the "
                "disk. Nothing is lost: make room there, and the run continues."
            )
        return tuple(BlobRef(bytes(row[1:].astype(np.uint8)).hex(), int(row[0])) for row in reports)

    def unable(self, *, able: bool) -> list[int]:
        """Ranks that report that they cannot continue; every process gets the same list."""
        reports = np.zeros(self.size)
        reports[self.rank] = not able
        return np.flatnonzero(self.add_up(reports)).tolist()


class EmulatedRanks(Ranks):
    """One process that computes what several ranks with `learner.exact_ranks` compute together, with the same bits."""

    def __init__(self, size: int) -> None:
        self.size = size

    def rounds(self, passes: Sequence[T]) -> list[list[tuple[T, bool]]]:
        """See `Ranks.rounds`: the passes of all ranks in rank order."""
        return deal(passes, self.size)

    @contextmanager
    def accumulating(self, parameters: Sequence[torch.nn.Parameter]) -> Iterator[None]:
        """See `Ranks.accumulating`: as the ranks do, sum a round's gradients before adding them to the earlier ones."""
        gradients = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        yield
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)

    def clip(self, parameters: Sequence[torch.nn.Parameter], largest: float) -> float:
        """See `Ranks.clip`: squares are summed over the rows that each rank holds."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        shards = [shard for gradient in gradients for shard in gradient.chunk(self.size)]
        return scale_down(gradients, square_sums(shards), largest)

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Ranks.add_up`. In the real sum all ranks but one add zeros, which only changes -0 to 0."""
        return values + 0.0


def deal(passes: Sequence[T], size: int) -> list[list[tuple[T, bool]]]:
    """Deal passes to `size` ranks  # [rounds][ranks]; ranks without one in the last round repeat the first pass."""
    rounds = [
        [(forward_pass, True) for forward_pass in passes[first : first + size]]
        for first in range(0, len(passes), size)
    ]
    return [dealt + [(passes[0], False)] * (size - len(dealt)) for dealt in rounds]


def is_emulated(settings: LearnerSettings) -> bool:
    """Whether one process can repeat bit for bit what several ranks with these settings computed."""
    return settings.processes > 1 and settings.exact_ranks


def ranks_alone(settings: LearnerSettings) -> Ranks:
    """The ranks of a single process: it emulates those of the settings if that gives the same bits."""
    return EmulatedRanks(settings.processes) if is_emulated(settings) else Ranks()
