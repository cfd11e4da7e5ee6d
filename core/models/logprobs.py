"""Log-probabilities of recorded answers, which the learner differentiates and with which engines must agree.

Samples are packed into forward passes by padded tokens in a fixed order, so that the same samples give the same bits.
Padding is on the right, where a causal model cannot see it; action tokens are selected by position, never by the attention
mask. The model computes on the device of its weights; results are on the CPU.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hindcast.core.grammar.allowed_tokens import Allowed, unpack_allowed
from hindcast.core.models.arithmetic import APART, arithmetic, device_of
from hindcast.core.models.token_trees import TokenTree, answer_places, hidden_states, tree_inputs
from hindcast.core.models.vision import ProcessedImage, picture_inputs
from hindcast.core.settings.computing import Precision

TOKENS_PER_CHUNK = 256
"""Action tokens whose logits become log-probabilities together; a gradient computes each chunk again.

Every step after the head works on each token alone, so the chunks give the bits of the whole, and of all tokens only the
logits and their gradient are in memory at once.
"""


FLOAT32_HEAD = "float32_head"
"""Attribute of a model whose logits are computed in float32, whatever precision its layers have."""


class SampleToScore(NamedTuple):
    """One sample to score: a prompt and its recorded answer."""

    prompt_ids: Sequence[int]
    """Tokens that the policy read."""
    action_ids: Sequence[int]
    """Tokens that it sampled, including the end token if sampled."""
    allowed: bytes = b""
    """Allowed token sets, packed by `core.grammar.allowed_tokens`; empty: the whole vocabulary for each token."""
    pictures: Sequence[ProcessedImage] = ()
    """Pictures in the prompt, in order."""


def score(
    model: Any, samples: Sequence[SampleToScore], *, temperature: float, tokens_per_forward: int
) -> list[torch.Tensor]:
    """Compute the log-probabilities of each sample's action tokens  # [action tokens] float32 each, in the given order.

    The logits are divided by the sampling `temperature`; 0 counts as 1, as in `Sampling`. Tokens outside the allowed sets
    have probability 0 and no gradient. Differentiable.
    """
    scores: list[torch.Tensor] = [torch.empty(0)] * len(samples)
    for pack in packs(samples, tokens_per_forward=tokens_per_forward):
        pack_scores = score_pack(model, [samples[index] for index in pack], temperature=temperature)
        for index, logprobs in zip(pack, pack_scores, strict=True):
            scores[index] = logprobs
    return scores


def packs(
    samples: Sequence[SampleToScore], *, tokens_per_forward: int, joined: bool = False
) -> list[list[int]]:
    """Group indices of samples that share a forward pass, sorted by length, then by index, up to a number of tokens.

    Padding counts, unless samples are `joined` in one row. A sample longer than the budget gets a pass of its own.
    """
    order = sorted(range(len(samples)), key=lambda index: (_length(samples[index]), index))
    result: list[list[int]] = []
    tokens = 0
    for index in order:
        length = _length(samples[index])
        tokens = tokens + length if joined else length * (len(result[-1]) + 1 if result else 1)
        if result and tokens <= tokens_per_forward:
            result[-1].append(index)
        else:
            result.append([index])
            tokens = length
    return result


def score_pack(
    model: Any,
    samples: Sequence[SampleToScore],
    *,
    temperature: float,
    joined: bool = False,
    trees: Sequence[TokenTree] = (),
) -> list[torch.Tensor]:
    """Score samples that fit one forward pass, in their order.

    Each has a row of its own, or all are `joined` in one row (see `computes_packed_alike`), or they share rows in `trees`.
    """
    logits = _action_logits(model, samples, joined=joined, trees=trees)
    targets = torch.tensor([token for sample in samples for token in sample.action_ids], device=logits.device)
    allowed = _allowed(samples)
    chunks = [
        checkpoint(
            _sampled_logprobs,
            chunk,
            targets[start : start + len(chunk)],
            allowed[start : start + len(chunk)],
            temperature,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for start, chunk in zip(
            range(0, max(len(logits), 1), TOKENS_PER_CHUNK),
            torch.split(logits, TOKENS_PER_CHUNK),
            strict=True,
        )
    ]
    return list(torch.split(torch.cat(chunks).cpu(), [len(sample.action_ids) for sample in samples]))


def _sampled_logprobs(
    logits: torch.Tensor, targets: torch.Tensor, allowed: Sequence[Allowed | None], temperature: float
) -> torch.Tensor:
    """Return the log-probability of each target  # [tokens, vocabulary], [tokens] -> [tokens]."""
    return _log_softmax(logits, allowed, temperature).gather(-1, targets[:, None])[:, 0]


def distributions(model: Any, samples: Sequence[SampleToScore], *, temperature: float) -> list[torch.Tensor]:
    """Compute the distribution of each action token, as log-probabilities  # [action tokens, vocabulary] for each sample.

    The samples must fit one forward pass. `score_pack` selects the sampled tokens from the same distributions.
    """
    log_probs = _log_softmax(_action_logits(model, samples), _allowed(samples), temperature).cpu()
    return list(torch.split(log_probs, [len(sample.action_ids) for sample in samples]))


def _action_logits(
    model: Any,
    samples: Sequence[SampleToScore],
    *,
    joined: bool = False,
    trees: Sequence[TokenTree] = (),
) -> torch.Tensor:
    """Compute the logits of each action token in the head's precision  # [action tokens, vocabulary]."""
    device = device_of(model)
    compute_logits = getattr(model, "read_out", None) or partial(read_out, model)
    if trees:
        inputs = tree_inputs(trees)
        extra = {"position_ids": inputs.positions.to(device), "attention_mask": inputs.mask.to(device)}
        logits: torch.Tensor = compute_logits(inputs.ids.to(device), *answer_places(trees), lambda: extra)
    elif joined:
        ids = torch.tensor(
            [[token for sample in samples for token in (*sample.prompt_ids, *sample.action_ids)]]
        )
        positions = torch.tensor([[position for sample in samples for position in range(_length(sample))]])
        rows, columns = _before_actions(samples, joined=True)
        logits = compute_logits(ids.to(device), rows, columns, lambda: {"position_ids": positions.to(device)})
    else:
        ids = torch.zeros((len(samples), max(map(_length, samples))), dtype=torch.long)
        for row, sample in enumerate(samples):
            ids[row, : _length(sample)] = torch.tensor([*sample.prompt_ids, *sample.action_ids])
        ids = ids.to(device)
        pictures = [picture for sample in samples for picture in sample.pictures]
        lengths, prompts = list(map(_length, samples)), [len(sample.prompt_ids) for sample in samples]
        extra_inputs = partial(picture_inputs, model, ids, pictures, lengths, prompts=prompts)
        logits = compute_logits(ids, *_before_actions(samples), extra_inputs if pictures else dict)
    return logits


def _log_softmax(logits: torch.Tensor, allowed: Sequence[Allowed | None], temperature: float) -> torch.Tensor:
    """Turn logits into log-probabilities over the allowed tokens  # [tokens, vocabulary] float32."""
    return torch.log_softmax(restrict(logits.float() / (temperature or 1.0), allowed), dim=-1)


def read_out(
    model: Any,
    ids: torch.Tensor,
    rows: torch.Tensor,
    columns: torch.Tensor,
    extra_inputs: Callable[[], Mapping[str, torch.Tensor | None]],
) -> torch.Tensor:
    """Compute the logits at the given positions of a batch  # ids [rows, length] -> [columns, vocabulary].

    `extra_inputs` makes further inputs of the model: the position of each token in its own sequence if several share a row,
    by which transformers separates them, a mask of trees, or the embeddings of pictures (`picture_inputs`). A model sharded over processes has
    its own `read_out`, which gathers the parameters that it needs (`learner.distributed.ranks`).
    """
    inputs = {"input_ids": ids, **extra_inputs()}
    hidden = model.base_model(use_cache=False, **inputs).last_hidden_state[rows, columns]
    head = model.get_output_embeddings()
    if getattr(model, FLOAT32_HEAD, False):
        with torch.autocast(hidden.device.type, enabled=False):
            bias = None if head.bias is None else head.bias.float()
            return functional.linear(hidden.float(), head.weight.float(), bias)
    logits: torch.Tensor = head(hidden)
    return logits


def restrict(logits: torch.Tensor, allowed: Sequence[Allowed | None]) -> torch.Tensor:
    """Set the logits of tokens outside a row's allowed set to -inf; None allows all  # [rows, vocabulary]."""
    rows = [row for row, each in enumerate(allowed) if each is not None]
    if not rows:
        return logits
    restricted = torch.from_numpy(np.stack([each for each in allowed if each is not None])).to(logits.device)
    left_out = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    left_out[rows] = ~restricted
    return logits.masked_fill(left_out, float("-inf"))


def _allowed(samples: Sequence[SampleToScore]) -> list[Allowed | None]:
    """Return the allowed set of each action token of all samples."""
    allowed: list[Allowed | None] = []
    for sample in samples:
        allowed.extend(unpack_allowed(sample.allowed) if sample.allowed else [None] * len(sample.action_ids))
    return allowed


def _before_actions(
    samples: Sequence[SampleToScore], *, joined: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and columns of the positions whose logits predict action tokens."""
    rows: list[int] = []
    columns: list[int] = []
    offset = 0
    for row, sample in enumerate(samples):
        start = offset + len(sample.prompt_ids) - 1
        rows += [0 if joined else row] * len(sample.action_ids)
        columns += range(start, start + len(sample.action_ids))
        offset += _length(sample) if joined else 0
    return torch.tensor(rows, dtype=torch.long), torch.tensor(columns, dtype=torch.long)


def _length(sample: SampleToScore) -> int:
    return len(sample.prompt_ids) + len(sample.action_ids)


@torch.no_grad()
def computes_packed_alike(model: Any, precision: Precision = "float32") -> bool:
    """Whether the model computes the same for a short sequence packed after another one as for it alone.

    In the precision of its updates: some attention kernels exist in bfloat16 only.

    Models with attention only do: transformers masks by positions, which restart with each sequence. Layers that carry state
    along a row, such as convolutions, need kernels that know where a sequence begins, which are not always installed. So the
    model itself is tested.
    """
    device = device_of(model)
    first, second = torch.arange(2, 9, device=device)[None], torch.arange(9, 20, device=device)[None]
    positions = torch.cat([torch.arange(ids.shape[1], device=device) for ids in (first, second)])[None]
    compute_hidden = getattr(model, "hidden_states", None) or partial(hidden_states, model)
    with arithmetic(precision, model):
        together = compute_hidden(input_ids=torch.cat([first, second], 1), position_ids=positions)
        alone = compute_hidden(input_ids=second)
    distance = (together[:, first.shape[1] :] - alone).abs().max()
    return bool(distance <= APART[precision] * alone.abs().max())
