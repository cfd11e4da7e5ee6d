"""Samples that begin alike share a row of tokens: a tree, in which every token attends to its own path alone.

The members of a group read the same pages, and the prompts of an episode's steps begin with the same instruction. Computed
once, what samples have in common costs an update once, and the mathematics stays that of each sample alone: gradients through
a shared token add up.

    row        I n s t r u c t i o n   p a g e   A n s w e r  w e r  B n o t h e r
    sample 1   I n s t r u c t i o n   p a g e   A n s w e r
    sample 2   I n s t r u c t i o n   p a g e                       B n o t h e r

A convolution reads the tokens before it in the row, whatever the mask says. So where a branch does not follow its parent, the
last tokens of its path are repeated before it, as many as all convolutions of the model reach back together (`w e r` above).
Nothing attends to these copies; they only carry the path into the convolutions.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from hindcast.core.models.arithmetic import APART, arithmetic, device_of
from hindcast.core.settings.computing import Precision

WORTH = 0.25
"""Least share of a sample's tokens that must be saved for it to join a tree: a longer row costs its other tokens attention."""
SLIDING = ("sliding_window", "attention_chunk_size")
"""Configuration of attention that sees only the newest tokens of a row, where a path's own may lie further back."""


class _Stretch(NamedTuple):
    """Successive tokens of a row that continue one path, or copy the end of one."""

    start: int
    """Place of its first token in the row."""
    copied: Sequence[int]
    """Places of the tokens that these copy; empty: they are new."""
    parent: int
    """Place of the token before the first one on its path; -1: it begins the path."""


class TokenTree:
    """Some samples as one row."""

    def __init__(self, index: int, tokens: Sequence[int], prompt: int) -> None:
        """Begin with sample number `index`, of which the first `prompt` tokens are given and the others are its answer."""
        self.ids: list[int] = []
        """Tokens of the row."""
        self.depths: list[int] = []
        """Position of each token in its own sample."""
        self.members: list[int] = []
        """Numbers of the samples."""
        self.answers: list[list[int]] = []
        """Places in the row whose logits predict each member's answer."""
        self._newest: Sequence[int] = ()
        self._path: list[int] = []
        """Places of the newest sample's tokens."""
        self._stretches: list[_Stretch] = []
        self.add(index, tokens, prompt, reach=0)

    def cost(self, tokens: Sequence[int], *, reach: int) -> int:
        """How many tokens longer the row gets with a sample that sorts after all of the row.

        The whole sample's length if its path is too short for the convolutions' copies: it saves nothing.
        """
        shared = self._shared(tokens)
        if self._follows(shared):
            return len(tokens) - shared
        return len(tokens) - shared + reach if shared >= max(reach, 1) else len(tokens)

    def add(self, index: int, tokens: Sequence[int], prompt: int, *, reach: int) -> None:
        """Add a sample that sorts after all of the row."""
        shared = self._shared(tokens)
        if not self._follows(shared):
            self._extend(self._path[shared - reach : shared], copies=True)
        del self._path[shared:]
        self._extend(tokens[shared:])
        self._newest = tokens
        self.members.append(index)
        self.answers.append(self._path[prompt - 1 : -1])

    def mask(self, length: int) -> torch.Tensor:
        """Whether a token attends to another  # bool [length, length]; padding attends to itself."""
        allowed = torch.eye(length, dtype=torch.bool)
        ends = [segment.start for segment in self._stretches[1:]] + [len(self.ids)]
        for (start, copied, parent), end in zip(self._stretches, ends, strict=True):
            if copied:
                allowed[start:end] = allowed[list(copied)]
                continue
            if parent >= 0:
                allowed[start:end] |= allowed[parent]
            allowed[start:end, start:end] = torch.ones(end - start, end - start, dtype=torch.bool).tril()
        return allowed

    def _shared(self, tokens: Sequence[int]) -> int:
        pairs = zip(self._newest, tokens, strict=False)
        return next(
            (depth for depth, (previous, current) in enumerate(pairs) if previous != current),
            min(len(self._newest), len(tokens)),
        )

    def _follows(self, shared: int) -> bool:
        """Whether a token at this depth comes right after its parent: the newest sample ends the row."""
        return shared == len(self._newest)

    def _extend(self, tokens: Sequence[int], *, copies: bool = False) -> None:
        """Append new tokens to the path, or copies of places of the row outside any path."""
        if not tokens:
            return
        start = len(self.ids)
        if copies:
            self._stretches.append(_Stretch(start, tuple(tokens), -1))
            self.ids += [self.ids[index] for index in tokens]
            self.depths += [self.depths[index] for index in tokens]
            return
        self._stretches.append(_Stretch(start, (), self._path[-1] if self._path else -1))
        self.depths += range(len(self._path), len(self._path) + len(tokens))
        self.ids += tokens
        self._path += range(start, len(self.ids))


def token_trees(
    prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], *, max_tokens: int, reach: int
) -> list[TokenTree]:
    """Put samples into rows of at most `max_tokens` tokens, each with those that begin alike, in an order of the tokens alone.

    `reach`: how far the model's convolutions see back (`reach_back`). A longer sample has a row of its own.
    """
    samples = [(*prompt, *answer) for prompt, answer in zip(prompts, answers, strict=True)]
    trees: list[TokenTree] = []
    for index in sorted(range(len(samples)), key=lambda index: (samples[index], index)):
        tokens, prompt = samples[index], len(prompts[index])
        if trees:
            cost = trees[-1].cost(tokens, reach=reach)
            if len(trees[-1].ids) + cost <= max_tokens and len(tokens) - cost >= WORTH * len(tokens):
                trees[-1].add(index, tokens, prompt, reach=reach)
                continue
        trees.append(TokenTree(index, tokens, prompt))
    return trees


class TreeInputs(NamedTuple):
    """Rows of a forward pass."""

    ids: torch.Tensor
    """[rows, length]."""
    positions: torch.Tensor
    """[rows, length]."""
    mask: torch.Tensor
    """bool [rows, 1, length, length], as transformers takes a mask of one's own."""


def tree_inputs(trees: Sequence[TokenTree]) -> TreeInputs:
    """Make the inputs of one forward pass, padded on the right."""
    length = max(len(tree.ids) for tree in trees)
    ids, positions = (torch.zeros((len(trees), length), dtype=torch.long) for _ in range(2))
    for row, tree in enumerate(trees):
        ids[row, : len(tree.ids)] = torch.tensor(tree.ids)
        positions[row, : len(tree.ids)] = torch.tensor(tree.depths)
    return TreeInputs(ids, positions, torch.stack([tree.mask(length) for tree in trees])[:, None])


def tree_passes(trees: Sequence[TokenTree], *, tokens_per_forward: int) -> list[list[TokenTree]]:
    """Group rows of similar length into forward passes of at most `tokens_per_forward` tokens, padding counted."""
    passes: list[list[TokenTree]] = []
    for tree in sorted(trees, key=lambda tree: len(tree.ids)):
        if passes and len(tree.ids) * (len(passes[-1]) + 1) <= tokens_per_forward:
            passes[-1].append(tree)
        else:
            passes.append([tree])
    return passes


def answer_places(trees: Sequence[TokenTree]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns whose logits predict the answers of all members, in the order of the trees."""
    positions = [
        (row, column) for row, tree in enumerate(trees) for answer in tree.answers for column in answer
    ]
    rows, columns = zip(*positions, strict=True) if positions else ((), ())
    return torch.tensor(rows, dtype=torch.long), torch.tensor(columns, dtype=torch.long)


def reach_back(model: Any) -> int:
    """How many tokens before its own a model's convolutions reach together, one after the other."""
    return sum(layer.kernel_size[0] - 1 for layer in model.modules() if isinstance(layer, nn.Conv1d))


def hidden_states(model: Any, **inputs: torch.Tensor) -> torch.Tensor:
    """Compute the hidden states after the last layer  # [rows, length, width].

    A model sharded over processes has its own `hidden_states`, which gathers the parameters that it needs.
    """
    hidden: torch.Tensor = model.base_model(use_cache=False, **inputs).last_hidden_state
    return hidden


@torch.no_grad()
def can_share(model: Any, precision: Precision = "float32") -> bool:
    """Whether the model computes the same for samples in a tree as for each alone; tried with three short ones.

    Models that carry a state along the row, other than by convolutions, do not; nor do those whose attention is limited to the
    newest tokens.
    """
    config = model.config.get_text_config()
    if any(getattr(config, name, None) for name in SLIDING):
        return False
    device, reach = device_of(model), reach_back(model)
    start = list(range(2, 10)) * max(reach, 4)
    samples = [[*start, 3, 5, 7], [*start, 4, 6], [*start, 4, 9, 8, 2]]
    (tree,) = token_trees(
        [start] * 3, [sample[len(start) :] for sample in samples], max_tokens=10**6, reach=reach
    )
    ids, positions, mask = (tensor.to(device) for tensor in tree_inputs([tree]))
    compute_hidden = getattr(model, "hidden_states", None) or partial(hidden_states, model)
    with arithmetic(precision, model):
        together = compute_hidden(input_ids=ids, position_ids=positions, attention_mask=mask)
        for index, columns in zip(tree.members, tree.answers, strict=True):
            tokens = torch.tensor([samples[index]], device=device)
            alone = compute_hidden(input_ids=tokens)[0, len(start) - 1 : -1]
            distance = (together[0, columns] - alone).abs().max()
            if not bool(distance <= APART[precision] * alone.abs().max()):
                return False
    return True
