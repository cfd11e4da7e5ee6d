"""A model under training, one optimizer step of it, and the event that reports the step. Independent of any loss."""

import ctypes
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hindcast.core.errors import CheckpointCorrupt
from hindcast.core.models.arithmetic import device_of
from hindcast.core.models.policy import encode_weights, optimizer_tensors, state_digest, weights_of
from hindcast.core.models.sharded_tensors import fill, shared_like
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import SampleReport
from hindcast.learner.distributed.ranks import Ranks

BETAS = (0.9, 0.999)
EPSILON = 1e-8
STEPS = "step"
"""AdamW's key for a parameter's step count."""


class Clocks(NamedTuple):
    """Wall and CPU time in seconds: readings of both clocks, or a difference of readings."""

    wall_s: float
    cpu_s: float
    """CPU time of all threads of this process."""

    @classmethod
    def read(cls) -> "Clocks":
        """Read both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def minus(self, other: "Clocks") -> "Clocks":
        """The duration since another reading, or these readings shifted back by a duration."""
        return Clocks(self.wall_s - other.wall_s, self.cpu_s - other.cpu_s)


NO_TIME = Clocks(0.0, 0.0)


class TrainedModel:
    """A model and its optimizer. Deterministic: equal gradients give equal states."""

    def __init__(
        self,
        name: str,
        model: Any,
        *,
        weight_decay: float,
        offload: bool = False,
        head: Iterable[torch.nn.Parameter] = (),
        ranks: Ranks | None = None,
        arithmetic: int = 1,
        digest_every: int = 1,
    ) -> None:
        """Wrap a model before its first update.

        `model`: a module whose state dict defines it. `offload`: keep the optimizer state on the CPU between steps. `head`:
        parameters with a learning rate of their own. `ranks`: those that share the model; None: this process alone.
        `arithmetic`: as `learner.arithmetic` in the settings. `digest_every`: updates between two digests (`digest_interval`).
        """
        self.name = name
        self.model = model
        self._offload = offload
        self._ranks = ranks or Ranks()
        self._arithmetic = arithmetic
        self._digest_every = digest_every
        head_parameters = set(head)
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups = [{"params": [weight for weight in self.trained if weight not in head_parameters]}]
        groups += [{"params": [weight for weight in self.trained if weight in head_parameters]}] * bool(
            head_parameters
        )
        self._fused = is_fused(arithmetic, device_of(model))
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=0.0,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=weight_decay,
            foreach=False,
            fused=self._fused,
        )
        self.update = 0
        """Optimizer steps so far."""
        self._state = ""
        """Digest of the present state; empty: not computed."""

    @property
    def digest(self) -> str:
        """Digest of weights and optimizer state, computed if it is not known. Every rank takes part, in the same order."""
        if not self._state:
            self._state = state_digest(self.model, self.optimizer, arithmetic=self._arithmetic)
        return self._state

    @property
    def recorded_digest(self) -> str:
        """What updates record of the state: its digest after every `digest_every`-th update; empty otherwise.

        It depends on the number of updates alone, so a learner that begins at a checkpoint records the same.
        """
        return "" if self.update % self._digest_every else self.digest

    def forget_gradient(self) -> None:
        """Clear the gradient, before accumulation or if it is not used."""
        self.optimizer.zero_grad(set_to_none=True)

    def take_gradient(self) -> list[torch.Tensor]:
        """Take the accumulated gradient away, one tensor per trained parameter; zeros for one without a gradient."""
        gradient = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach().clone()
            for parameter in self.trained
        ]
        self.forget_gradient()
        return gradient

    def step_sizes(
        self, gradient: Iterable[torch.Tensor], *, learning_rate: float, anew: bool = False
    ) -> list[torch.Tensor]:
        """How far AdamW moves each parameter per unit of this gradient, over the next step and the later ones that its momentum reaches.

        rate / (sqrt(v) + epsilon), with the second moments `v` after the step. The first moment spreads a gradient over
        later steps and adds up to all of it.
        """
        sizes: list[torch.Tensor] = []
        for parameter, slope in zip(self.trained, gradient, strict=True):
            state = {} if anew else self.optimizer.state.get(parameter, {})
            step = int(state[STEPS]) + 1 if state else 1
            squares = (1 - BETAS[1]) * slope.square()
            if state:
                squares += BETAS[1] * state["exp_avg_sq"].to(slope.device)
            sizes.append(learning_rate / ((squares / (1 - BETAS[1] ** step)).sqrt() + EPSILON))
        return sizes

    def clip(self, largest: float) -> float:
        """Clip the gradient to a norm of `largest`; returns the norm before."""
        return self._ranks.clip(self.trained, largest)

    @property
    def steps(self) -> int:
        """Steps of the optimizer since its moments began, or began anew."""
        return max((int(state[STEPS]) for state in self.optimizer.state.values()), default=0)

    def step(
        self,
        *,
        learning_rate: float,
        weight_decay: float,
        head_rate: float | None = None,
        anew: bool = False,
    ) -> None:
        """Take one optimizer step with the accumulated gradient.

        `head_rate` None: `learning_rate`. `anew`: as the first step of a new optimizer, without the moments so far.
        """
        if anew:
            self.optimizer.state.clear()
        body, *heads = self.optimizer.param_groups
        for group in (body, *heads):
            group["lr"] = learning_rate if group is body or head_rate is None else head_rate
            group["weight_decay"] = weight_decay
        if self._offload:
            self._step_one_by_one()
        else:
            self.optimizer.step()
        self.forget_gradient()
        self.update += 1
        self._state = ""

    def _step_one_by_one(self) -> None:
        """Step parameter by parameter, so that only one parameter's optimizer state is on the model's device."""
        groups = [(group, group["params"]) for group in self.optimizer.param_groups]
        for group, _ in groups:
            group["params"] = []
        try:
            for group, parameters in groups:
                for parameter in parameters:
                    group["params"] = [parameter]
                    _move(self.optimizer.state.get(parameter, {}), parameter.device)
                    self.optimizer.step()
                    _move(self.optimizer.state.get(parameter, {}), torch.device("cpu"))
                group["params"] = []
        finally:
            for group, parameters in groups:
                group["params"] = parameters

    def weights(self) -> bytes:
        """The weights as a safetensors file."""
        return encode_weights(self.model)

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """Tensors for a checkpoint, `weights/…` and `optimizer/…`; sharded if several processes compute the model."""
        tensors = {f"weights/{name}": value for name, value in weights_of(self.model).items()}
        optimizer_state = optimizer_tensors(self.model, self.optimizer)
        return tensors | {f"optimizer/{name}": value for name, value in optimizer_state.items()}

    def restore(self, tensors: Mapping[str, NDArray[np.generic]], *, update: int) -> None:
        """Load whole tensors as `held` returned them; reads one at a time.

        Raises:
            CheckpointCorrupt: they do not fit the model.
        """
        parameters = dict(self.model.named_parameters())
        try:
            for name, weights in weights_of(self.model).items():
                fill(weights, torch.from_numpy(tensors[f"weights/{name}"]))
            self.optimizer.state.clear()
            for key in tensors:  # not .items(): weights would be read a second time
                kind, _, qualified_name = key.partition("/")
                if kind == "optimizer":
                    name, _, entry = qualified_name.rpartition("/")
                    state = self.optimizer.state[parameters[name]]
                    content = torch.from_numpy(tensors[key].copy())
                    if entry == STEPS:
                        state[entry] = content.to(parameters[name].device) if self._fused else content
                    else:
                        state[entry] = shared_like(parameters[name], content)
                    if not self._offload:
                        _move(state, parameters[name].device)
        except (KeyError, RuntimeError, TypeError) as error:
            raise CheckpointCorrupt(
                f"the checkpoint of update {update} does not fit the {self.name}: {error}"
            ) from error
        self.update = update
        self._state = ""


def is_fused(arithmetic: int, device: torch.device) -> bool:
    """Whether one kernel takes AdamW's step: on a GPU, where each element is computed alike wherever it lies in a tensor."""
    return arithmetic > 1 and device.type == "cuda"


def _move(state: dict[str, Any], device: torch.device) -> None:
    """Move a parameter's optimizer state, but not the step count, which AdamW wants on the CPU, or fused on the GPU."""
    for name, value in state.items():
        if name != STEPS:
            state[name] = value.to(device)


@cache
def _trimmer() -> Callable[[int], int] | None:
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def give_back_freed() -> None:
    """Return the allocator's free pages to the system. Blocking, some milliseconds; changes no number.

    Every batch has tensors of other shapes than the one before, and glibc keeps the freed memory of each. Measured: 40 forward
    and backward passes of random shapes leave a process with 1 529 MiB, and with 386 if this is called after each. Other C
    libraries return memory by themselves; there this does nothing.
    """
    trim = _trimmer()
    if trim is not None:
        trim(0)


class MinibatchReport(NamedTuple):
    """What is reported of a mini-batch apart from the step; metrics are from before the step."""

    inputs: str
    """Digest of its inputs."""
    metrics: dict[str, float]
    samples: SampleReport


def step_along(
    learned: TrainedModel,
    plan: BatchPlanned,
    index: int,
    *,
    settings: LearnerSettings,
    rate: Callable[[int], float],
    account: Callable[[], MinibatchReport],
    started_at: Clocks,
    head_rate: float | None = None,
    anew: bool = False,
) -> UpdateApplied | UpdateSkipped:
    """Take the optimizer step of mini-batch `index` with the accumulated gradient; skip it if the gradient is not finite.

    `rate`: learning rate of the model's update 1, 2, 3 …. `head_rate`, `anew`: see `TrainedModel.step`. `started_at`: clock readings when the mini-batch began.
    """
    number, before = learned.update + 1, learned.recorded_digest
    norm = learned.clip(settings.max_gradient_norm)
    if not np.isfinite(norm):
        learned.forget_gradient()
        return UpdateSkipped(
            update=number,
            model=learned.name,
            batch=plan.batch,
            minibatch=index,
            reason=f"the gradient's norm is {norm}",
            state=before,
        )
    learning_rate = rate(number)
    learned.step(
        learning_rate=learning_rate, weight_decay=settings.weight_decay, head_rate=head_rate, anew=anew
    )
    after = learned.recorded_digest
    give_back_freed()
    duration, report = Clocks.read().minus(started_at), account()
    return UpdateApplied(
        update=number,
        model=learned.name,
        batch=plan.batch,
        minibatch=index,
        before=before,
        after=after,
        inputs=report.inputs,
        metrics=report.metrics | {"gradient_norm": norm, "learning_rate": learning_rate},
        samples=report.samples,
        duration_ms=duration.wall_s * 1000,
        cpu_ms=duration.cpu_s * 1000,
    )
