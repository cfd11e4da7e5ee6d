"""Test whether a model can read several packed sequences in one row without one attending to another.

Models with attention only can: transformers masks by positions, which restart with each sequence. Layers that carry state
along a row, such as convolutions, need kernels that know where a sequence begins, which are not always installed. So the
model itself is tested.
"""

from typing import Any

import torch

from hindcast.core.models.arithmetic import device_of

APART = 1e-3
"""Least difference, as a share of the largest number, that rounding does not explain."""


@torch.no_grad()
def keeps_apart(model: Any) -> bool:
    """Whether the model computes the same for a short sequence packed after another one as for it alone."""
    device = device_of(model)
    first, second = torch.arange(2, 9, device=device)[None], torch.arange(9, 20, device=device)[None]
    places = torch.cat([torch.arange(one.shape[1], device=device) for one in (first, second)])[None]
    read = model.base_model
    together = read(torch.cat([first, second], 1), position_ids=places, use_cache=False).last_hidden_state
    alone = read(second, use_cache=False).last_hidden_state
    apart = (together[:, first.shape[1] :] - alone).abs().max()
    return bool(apart <= APART * alone.abs().max())
