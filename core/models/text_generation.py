"""Greedy text generation by a causal model, for the learned relabeler: equal weights write equal texts."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from hindcast.core.models.policy import load_policy, load_weights


class TextGenerator:
    """A loaded model that writes texts. Raises ModelFileError if its folder or weights cannot be loaded."""

    def __init__(self, folder: Path, weights: Path, *, threads: int) -> None:
        """`folder`: folder of the policy with its architecture; `weights`: a published version of the model."""
        torch.set_num_threads(threads)
        policy = load_policy(folder)
        load_weights(policy.model, weights)
        self._model = policy.model
        self._ends = policy.stops

    def write(
        self, prompt_ids: Sequence[int], *, most: int, given_up: Callable[[], bool] = lambda: False
    ) -> list[int]:
        """Write the most likely tokens one by one, up to and including an end token, at most `most`.

        `given_up` is called before each token; if true, writing stops.
        """
        return write_greedily(self._model, prompt_ids, ends=self._ends, most=most, given_up=given_up)


@torch.inference_mode()
def write_greedily(
    model: Any,
    prompt_ids: Sequence[int],
    *,
    ends: Collection[int],
    most: int,
    given_up: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Write tokens greedily with a model: see `TextGenerator.write`."""
    written: list[int] = []
    ids, cache = torch.tensor([list(prompt_ids)], dtype=torch.long), None
    while len(written) < most and not given_up():
        found = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = found.past_key_values
        token = int(found.logits[0, -1].argmax())
        written.append(token)
        if token in ends:
            break
        ids = torch.tensor([[token]], dtype=torch.long)
    return written
