"""A key-value cache of slots: answers join and leave the batch at any step, and nothing is shifted or copied.

Each slot holds one sequence from its position 0 on; rows differ in length and a mask hides what lies behind each.
Full attention and short convolutions are supported: layers whose state is either one row per position, or a fixed
window.
"""

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from core.errors import ModelFileError

GROWTH = 256
"""Positions by which buffers grow."""


class SlotCache:
    """The states of up to `slots` sequences; the first `active` slots are in use. To be used in inference mode."""

    def __init__(self, model: Any, slots: int) -> None:
        self._config = model.config
        self._slots = slots
        self._capacity = 0
        self._layers: list[_Attention | _Window] = []
        self.lengths = torch.zeros(slots, dtype=torch.long)  # [slots]
        self.active = 0

    def admit(self, prefilled: DynamicCache, length: int) -> int:
        """Take over the states of one sequence after its prompt; returns its slot."""
        if not self._layers:
            self._layers = [_new_layer(layer, self._slots) for layer in prefilled.layers]
        slot = self.active
        self._reserve(length + 1)
        for own, other in zip(self._layers, prefilled.layers, strict=True):
            own.fill(slot, other)
        self.lengths[slot] = length
        self.active += 1
        return slot

    def release(self, slot: int) -> int:
        """Free a slot; the last active one moves into it. Returns the slot that moved, which may be the same."""
        last = self.active - 1
        if slot != last:
            for layer in self._layers:
                layer.move(last, slot)
            self.lengths[slot] = self.lengths[last]
        self.active = last
        return last

    def step(self, model: Any, tokens: torch.Tensor) -> torch.Tensor:
        """Feed one token to every active slot; returns the next logits  # [active, vocabulary] float32."""
        lengths = self.lengths[: self.active]
        longest = int(lengths.max()) + 1
        self._reserve(longest)
        cache = DynamicCache(config=self._config)
        cache.layers = [layer.view(lengths, longest) for layer in self._layers]
        mask = torch.arange(longest) <= lengths[:, None]  # [active, longest]
        output = model(
            input_ids=tokens[:, None],
            attention_mask=mask[:, None, None, :],
            position_ids=lengths[:, None],
            past_key_values=cache,
            use_cache=True,
        )
        self.lengths[: self.active] += 1
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    def _reserve(self, length: int) -> None:
        if length > self._capacity:
            self._capacity = -(-length // GROWTH) * GROWTH
            for layer in self._layers:
                layer.reserve(self._capacity)


class _Attention:
    """Keys and values of one layer  # [slots, heads, capacity, head width]."""

    def __init__(self, layer: Any, slots: int) -> None:
        self._keys = layer.keys.new_zeros((slots, layer.keys.shape[1], 0, layer.keys.shape[3]))
        self._values = layer.values.new_zeros((slots, layer.values.shape[1], 0, layer.values.shape[3]))

    def reserve(self, capacity: int) -> None:
        more = capacity - self._keys.shape[2]
        self._keys = torch.nn.functional.pad(self._keys, (0, 0, 0, more))
        self._values = torch.nn.functional.pad(self._values, (0, 0, 0, more))

    def fill(self, slot: int, layer: Any) -> None:
        length = layer.keys.shape[2]
        self._keys[slot, :, :length] = layer.keys[0]
        self._values[slot, :, :length] = layer.values[0]

    def move(self, source: int, target: int) -> None:
        self._keys[target] = self._keys[source]
        self._values[target] = self._values[source]

    def view(self, lengths: torch.Tensor, longest: int) -> "_AttentionView":
        return _AttentionView(self._keys, self._values, lengths, longest)


class _AttentionView(DynamicLayer):  # type: ignore[misc]
    """One decoding step's view of a layer: writes each row's new key and value behind its own last one."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, lengths: torch.Tensor, longest: int) -> None:
        super().__init__()
        self._buffers = (keys, values)
        self._rows = torch.arange(len(lengths))
        self._lengths, self._longest = lengths, longest

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by the model with one position per row  # [active, heads, 1, head width]."""
        keys, values = self._buffers
        keys[self._rows, :, self._lengths] = key_states[:, :, 0]
        values[self._rows, :, self._lengths] = value_states[:, :, 0]
        count = len(self._rows)
        return keys[:count, :, : self._longest], values[:count, :, : self._longest]

    def get_seq_length(self) -> int:
        """Positions before this step, of the longest row."""
        return self._longest - 1


class _Window:
    """The last inputs of a short convolution  # [slots, width, kernel]."""

    def __init__(self, layer: Any, slots: int) -> None:
        self._states = layer.conv_states[0].new_zeros((slots, *layer.conv_states[0].shape[1:]))
        self._kernel = layer.conv_kernel_size[0]

    def reserve(self, capacity: int) -> None:
        """The window does not grow."""

    def fill(self, slot: int, layer: Any) -> None:
        self._states[slot] = layer.conv_states[0][0]

    def move(self, source: int, target: int) -> None:
        self._states[target] = self._states[source]

    def view(self, lengths: torch.Tensor, longest: int) -> LinearAttentionLayer:
        del longest
        layer = LinearAttentionLayer()
        layer.conv_states[0] = self._states[: len(lengths)]
        layer.conv_kernel_size[0] = self._kernel
        layer.is_conv_states_initialized[0] = True
        layer.has_previous_state[0] = True
        layer.dtype, layer.device = self._states.dtype, self._states.device
        return layer


def _new_layer(layer: Any, slots: int) -> _Attention | _Window:
    if type(layer) is DynamicLayer:
        return _Attention(layer, slots)
    if type(layer) is LinearAttentionLayer and layer.recurrent_states[0] is None:
        return _Window(layer, slots)
    raise ModelFileError(
        f"the in-process engine cannot serve this model: it keeps {type(layer).__name__} as state, and only full "
        "attention and short convolutions are supported. Use a model of another architecture."
    )
