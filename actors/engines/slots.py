"""Key-value caches in slots: answers join and leave the batch at any step, and nothing is shifted or copied.

Each slot holds one sequence from its position 0 on. Rows differ in length, and a mask hides the positions after each.
Supported layers have a state of one row per position (full attention), or of a fixed window (short convolutions).
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from hindcast.core.errors import ModelFileError
from hindcast.core.models.arithmetic import device_of
from hindcast.core.models.vision import ProcessedImage, picture_inputs

GROWTH = 256
"""Positions by which buffers grow."""


States = TypeVar("States")


class Prefix(NamedTuple, Generic[States]):
    """The first tokens of a prompt, which were read with another one."""

    states: States
    """States after that other prompt; they may reach beyond the prefix."""
    length: int
    """Tokens that both begin with: fewer than the prompt has."""


class Slots(Protocol):
    """A model with the states of several sequences. Use it in inference mode."""

    def prefill(
        self,
        prompt_ids: Sequence[int],
        pictures: Sequence[ProcessedImage] = (),
        begin: Prefix[Any] | None = None,
    ) -> tuple[Any, torch.Tensor]:
        """States after a prompt and the logits that follow  # [1, vocabulary]. Changes nothing; states may be admitted twice.

        `pictures`: the prompt's pictures, in order. `begin`: what need not be computed again, of a prompt without pictures.
        """
        ...

    def size(self, states: Any) -> int:
        """Bytes that a prompt's states take."""
        ...

    def admit(self, states: Any, length: int) -> int:
        """Copy one sequence into a slot; returns the slot. Active slots are always the first ones."""
        ...

    def release(self, slot: int) -> int:
        """Free a slot; the last active one moves into it. Returns the slot that moved, which may be the same."""
        ...

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Feed one token to every active slot  # [active]; returns the next logits  # [active, vocabulary] float32."""
        ...

    def refresh(self) -> None:
        """Note that the model's weights have changed; no slot is active."""
        ...


class SlotCounter:
    """Slots in use, and the lengths of their sequences."""

    def __init__(self, slots: int) -> None:
        self._lengths = [0] * slots
        self._active = 0

    @property
    def lengths(self) -> list[int]:
        """Lengths of the active slots."""
        return self._lengths[: self._active]

    def admit(self, length: int) -> int:
        """Take the next slot."""
        self._lengths[self._active] = length
        self._active += 1
        return self._active - 1

    def release(self, slot: int) -> int:
        """Release a slot; the last one takes its place. Returns the last one."""
        self._active -= 1
        self._lengths[slot] = self._lengths[self._active]
        return self._active

    def advance(self) -> None:
        """Add one to the length of every active sequence."""
        for slot in range(self._active):
            self._lengths[slot] += 1


class ReadPrompt(NamedTuple):
    """A model's state after a prompt."""

    cache: DynamicCache
    shift: int
    """Offset from a token's index to its position: pictures take fewer positions than tokens."""


class CacheSlots:
    """`Slots` over any causal model of transformers with full attention and short convolutions, through its cache."""

    def __init__(self, model: Any, slots: int) -> None:
        self._model = model
        self._device = device_of(model)
        self._slots = slots
        self._capacity = 0
        self._layers: list[_Attention | _Window] = []
        self._counter = SlotCounter(slots)
        self._shifts = [0] * slots

    def refresh(self) -> None:
        """Do nothing: no state here derives from the weights."""

    def prefill(
        self,
        prompt_ids: Sequence[int],
        pictures: Sequence[ProcessedImage] = (),
        begin: Prefix[ReadPrompt] | None = None,
    ) -> tuple[ReadPrompt, torch.Tensor]:
        """States after a prompt and the logits that follow  # [1, vocabulary]. With windows, all of it is computed."""
        cache = DynamicCache(config=self._model.config)
        prefix_length = 0 if begin is None else _continue(cache, begin)
        ids = torch.tensor([prompt_ids[prefix_length:]], device=self._device)
        image_inputs = picture_inputs(self._model, ids, pictures, [len(prompt_ids)]) if pictures else {}
        inputs = {"input_ids": ids, **image_inputs}
        output = self._model(past_key_values=cache, use_cache=True, logits_to_keep=1, **inputs)
        position_ids = image_inputs.get("position_ids")
        shift = 0 if position_ids is None else int(position_ids.max()) + 1 - len(prompt_ids)
        return ReadPrompt(cache, shift), output.logits[:, -1].float()

    def size(self, states: ReadPrompt) -> int:
        """Bytes that a prompt's states take."""
        return sum(tensor.nbytes for layer in states.cache.layers for tensor in _tensors(layer))

    def admit(self, states: ReadPrompt, length: int) -> int:
        """Copy one sequence into a slot; returns the slot. Raises ModelFileError for a model that cannot be served."""
        if not self._layers:
            self._layers = [_new_layer(layer, self._slots) for layer in states.cache.layers]
        self._reserve(length + 1)
        slot = self._counter.admit(length)
        self._shifts[slot] = states.shift
        for slot_layer, prompt_layer in zip(self._layers, states.cache.layers, strict=True):
            slot_layer.fill(slot, prompt_layer)
        return slot

    def release(self, slot: int) -> int:
        """Free a slot; the last active one moves into it. Returns the slot that moved, which may be the same."""
        last = self._counter.release(slot)
        if slot != last:
            self._shifts[slot] = self._shifts[last]
            for layer in self._layers:
                layer.move(last, slot)
        return last

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Feed one token to every active slot; returns the next logits  # [active, vocabulary] float32."""
        own_lengths = self._counter.lengths
        longest = max(own_lengths) + 1
        self._reserve(longest)
        lengths = torch.tensor(own_lengths, device=self._device)
        positions = [length + shift for length, shift in zip(own_lengths, self._shifts, strict=False)]
        cache = DynamicCache(config=self._model.config)
        cache.layers = [layer.view(lengths, longest) for layer in self._layers]
        mask = torch.arange(longest, device=self._device) <= lengths[:, None]  # [active, longest]
        output = self._model(
            input_ids=tokens.to(self._device)[:, None],
            attention_mask=mask[:, None, None, :],
            position_ids=torch.tensor(positions, device=self._device)[:, None],
            past_key_values=cache,
            use_cache=True,
        )
        self._counter.advance()
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
        added = capacity - self._keys.shape[2]
        self._keys = torch.nn.functional.pad(self._keys, (0, 0, 0, added))
        self._values = torch.nn.functional.pad(self._values, (0, 0, 0, added))

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
    """One decoding step's view of a layer: writes each row's new key and value after its own last one."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, lengths: torch.Tensor, longest: int) -> None:
        super().__init__()
        self._buffers = (keys, values)
        self._rows = torch.arange(len(lengths), device=lengths.device)
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
        """Length before this step, of the longest row."""
        return self._longest - 1


class _Window:
    """The last inputs of a short convolution  # [slots, width, kernel]."""

    def __init__(self, layer: Any, slots: int) -> None:
        self._states = layer.conv_states[0].new_zeros((slots, *layer.conv_states[0].shape[1:]))
        self._kernel = layer.conv_kernel_size[0]

    def reserve(self, capacity: int) -> None:
        """Do nothing: the window does not grow."""

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


def _continue(cache: DynamicCache, begin: Prefix[ReadPrompt]) -> int:
    """Copy a prefix into an empty cache; returns its length, or 0 if a layer's state cannot be cut back to it."""
    earlier = begin.states.cache.layers
    if any(type(layer) is not DynamicLayer for layer in earlier):
        return 0
    for number, layer in enumerate(earlier):
        cache.update(layer.keys[:, :, : begin.length], layer.values[:, :, : begin.length], number)
    return begin.length


def _tensors(layer: Any) -> tuple[torch.Tensor, ...]:
    if type(layer) is DynamicLayer:
        return layer.keys, layer.values
    return tuple(layer.conv_states.values()) if type(layer) is LinearAttentionLayer else ()


def _new_layer(layer: Any, slots: int) -> _Attention | _Window:
    if type(layer) is DynamicLayer:
        return _Attention(layer, slots)
    if type(layer) is LinearAttentionLayer and layer.recurrent_states[0] is None:
        return _Window(layer, slots)
    raise ModelFileError(
        f"the in-process engine cannot serve this model: it keeps {type(layer).__name__} as state, and only full "
        "attention and short convolutions are supported. Use a model of another architecture."
    )
