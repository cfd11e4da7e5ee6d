"""One model under training: weights, AdamW and how many steps it has taken. Nothing here knows a loss."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hindcast.core.errors import CheckpointCorrupt
from hindcast.core.models.policy import encode_weights, weights_of
from hindcast.core.models.sharded_tensors import fill, shared_like, whole
from hindcast.core.models.state_digest import optimizer_tensors, state_digest

BETAS = (0.9, 0.999)
EPSILON = 1e-8
STEPS = "step"
"""AdamW's name for how many steps a parameter has taken."""


class TrainedModel:
    """A model and its optimiser. Deterministic: equal gradients give equal states."""

    def __init__(self, name: str, model: Any, *, weight_decay: float, offload: bool = False) -> None:
        """`model`: a module whose state dict defines it, before its first update.

        `offload`: its optimiser's state lies on the CPU between steps, wherever the model is.
        """
        self.name = name
        self.model = model
        self._offload = offload
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(
            trained, lr=0.0, betas=BETAS, eps=EPSILON, weight_decay=weight_decay, foreach=False
        )
        self.update = 0
        """Optimiser steps so far."""
        self.digest = state_digest(model, self.optimizer)
        """Of weights and optimiser state."""

    def forget_gradient(self) -> None:
        """Before a gradient is accumulated, and where it is not used."""
        self.optimizer.zero_grad(set_to_none=True)

    def clip(self, largest: float) -> float:
        """Scale the gradient down to this norm; returns the norm it had."""
        return float(whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), largest, foreach=False)))

    def step(self, *, learning_rate: float, weight_decay: float) -> None:
        """One optimiser step along the gradient accumulated."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
            group["weight_decay"] = weight_decay
        if self._offload:
            self._step_one_by_one()
        else:
            self.optimizer.step()
        self.forget_gradient()
        self.update += 1
        self.digest = state_digest(self.model, self.optimizer)

    def _step_one_by_one(self) -> None:
        """The same step, parameter by parameter: only one's state is where the model is at a time."""
        (group,) = self.optimizer.param_groups
        parameters = group["params"]
        try:
            for parameter in parameters:
                group["params"] = [parameter]
                _move(self.optimizer.state.get(parameter, {}), parameter.device)
                self.optimizer.step()
                _move(self.optimizer.state.get(parameter, {}), torch.device("cpu"))
        finally:
            group["params"] = parameters

    def weights(self) -> bytes:
        """The weights as a safetensors file."""
        return encode_weights(self.model)

    def held(self) -> dict[str, torch.Tensor]:
        """What a checkpoint holds of it, `weights/…` and `optimizer/…`; split where several processes compute it."""
        found = {f"weights/{name}": value for name, value in weights_of(self.model).items()}
        own = optimizer_tensors(self.model, self.optimizer)
        return found | {f"optimizer/{name}": value for name, value in own.items()}

    def restore(self, tensors: Mapping[str, NDArray[np.generic]], *, update: int) -> None:
        """Take over what `held` gave, whole; read one tensor at a time.

        Raises:
            CheckpointCorrupt: it does not fit the model.

        """
        named = dict(self.model.named_parameters())
        try:
            for name, own in weights_of(self.model).items():
                fill(own, torch.from_numpy(tensors[f"weights/{name}"]))
            self.optimizer.state.clear()
            for key in tensors:  # no item of it: weights would be read a second time
                kind, _, rest = key.partition("/")
                if kind == "optimizer":
                    name, _, entry = rest.rpartition("/")
                    state = self.optimizer.state[named[name]]
                    content = torch.from_numpy(tensors[key].copy())
                    state[entry] = content if entry == STEPS else shared_like(named[name], content)
                    if not self._offload:
                        _move(state, named[name].device)
        except (KeyError, RuntimeError, TypeError) as error:
            raise CheckpointCorrupt(
                f"the checkpoint of update {update} does not fit the {self.name}: {error}"
            ) from error
        self.update, self.digest = update, state_digest(self.model, self.optimizer)


def _move(state: dict[str, Any], device: torch.device) -> None:
    """A parameter's optimiser state; the count of its steps is on the CPU in any case, as AdamW wants it."""
    for name, value in state.items():
        if name != STEPS:
            state[name] = value.to(device)
