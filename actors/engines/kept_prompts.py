"""The engine's prefix cache: prompts that it has read, with the model's states after them.

A group's episodes begin with one page. An episode's steps share the instruction and the history, an agent's calls the
conversation so far. A prompt that begins like a kept one is read from where the two part.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hindcast.actors.engines.slots import Prefix, Slots
from hindcast.core.models.vision import ProcessedImage

ALWAYS_KEPT = 16
"""Prompts to keep whatever their size: the contexts of an actor."""
KEPT_BYTES = 64 * 2**20
"""Size of all states up to which more prompts are kept: 9 600 tokens of the shipped policy."""
SHORTEST_PREFIX = 16
"""Tokens below which nothing is shared: computing them again costs no more."""


class _KeptPrompt(NamedTuple):
    ids: NDArray[np.int64]
    pictures: int
    states: Any
    logits: torch.Tensor
    size: int


class KeptPrompts:
    """Reads prompts for `Slots`; keeps those read last. Use it in inference mode."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._kept: OrderedDict[tuple[Any, ...], _KeptPrompt] = OrderedDict()
        """By the prompt's tokens and the digests of its pictures, the one used last at the end."""
        self._size = 0

    def prefill(
        self, prompt_ids: Sequence[int], pictures: Sequence[ProcessedImage] = ()
    ) -> tuple[Any, torch.Tensor]:
        """States after a prompt and the logits that follow  # [1, vocabulary]."""
        ids = np.asarray(prompt_ids, dtype=np.int64)
        key = (ids.tobytes(), *(picture.digest for picture in pictures))
        kept = self._kept.get(key)
        if kept is None:
            begin = None if pictures else self._longest_prefix(ids)
            states, logits = self._slots.prefill(prompt_ids, pictures, begin)
            kept = self._kept[key] = _KeptPrompt(ids, len(pictures), states, logits, self._slots.size(states))
            self._size += kept.size
            while len(self._kept) > ALWAYS_KEPT and self._size > KEPT_BYTES:
                self._size -= self._kept.popitem(last=False)[1].size
        self._kept.move_to_end(key)
        return kept.states, kept.logits

    def clear(self) -> None:
        """Forget all of them: the model's weights have changed."""
        self._kept.clear()
        self._size = 0

    def _longest_prefix(self, ids: NDArray[np.int64]) -> Prefix[Any] | None:
        """What a prompt has in common with the kept one that it shares most with; its last token is always read."""
        longest = SHORTEST_PREFIX - 1
        prefix = None
        for kept in self._kept.values():
            max_length = min(len(ids) - 1, len(kept.ids))
            if (
                max_length <= longest
                or kept.pictures
                or not np.array_equal(ids[: longest + 1], kept.ids[: longest + 1])
            ):
                continue
            differing = np.flatnonzero(ids[:max_length] != kept.ids[:max_length])
            longest = int(differing[0]) if len(differing) else max_length
            prefix = Prefix(kept.states, longest)
        return prefix
