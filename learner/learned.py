"""One model under training: weights, AdamW and how many steps it has taken. Nothing here knows a loss."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from core.errors import CheckpointCorrupt
from core.models.policy import encode_weights, weights_of
from core.models.state import optimizer_tensors, state_digest

BETAS = (0.9, 0.999)
EPSILON = 1e-8

Tensors = dict[str, NDArray[np.generic]]


class Learned:
    """A model and its optimiser. Deterministic: equal gradients give equal states."""

    def __init__(self, name: str, model: Any, *, weight_decay: float) -> None:
        """`model`: a module whose state dict defines it, before its first update."""
        self.name = name
        self.model = model
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=0.0, betas=BETAS, eps=EPSILON, weight_decay=weight_decay, foreach=False
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
        return float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), largest, foreach=False))

    def step(self, *, learning_rate: float, weight_decay: float) -> None:
        """One optimiser step along the gradient accumulated."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
            group["weight_decay"] = weight_decay
        self.optimizer.step()
        self.forget_gradient()
        self.update += 1
        self.digest = state_digest(self.model, self.optimizer)

    def weights(self) -> bytes:
        """The weights as a safetensors file."""
        return encode_weights(self.model)

    def tensors(self) -> Tensors:
        """What a checkpoint holds of it: `weights/…` and `optimizer/…`."""
        found = {f"weights/{name}": value.numpy() for name, value in weights_of(self.model).items()}
        own = optimizer_tensors(self.model, self.optimizer)
        return found | {f"optimizer/{name}": value.numpy() for name, value in own.items()}

    def restore(self, tensors: Mapping[str, NDArray[np.generic]], *, update: int) -> None:
        """Take over what `tensors` gave.

        Raises:
            CheckpointCorrupt: it does not fit the model.

        """
        named = dict(self.model.named_parameters())
        try:
            with torch.no_grad():
                for name, own in weights_of(self.model).items():
                    own.copy_(torch.from_numpy(tensors[f"weights/{name}"]))
            self.optimizer.state.clear()
            for key, value in tensors.items():
                kind, _, rest = key.partition("/")
                if kind == "optimizer":
                    name, _, entry = rest.rpartition("/")
                    self.optimizer.state[named[name]][entry] = torch.from_numpy(value.copy())
        except (KeyError, RuntimeError, TypeError) as error:
            raise CheckpointCorrupt(
                f"the checkpoint of update {update} does not fit the {self.name}: {error}"
            ) from error
        self.update, self.digest = update, state_digest(self.model, self.optimizer)
