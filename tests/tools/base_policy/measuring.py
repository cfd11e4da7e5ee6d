"""How well a policy reads: the share of answers that are exactly right, greedily, on samples it has not seen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hindcast.actors.environments.base import DemonstratedStep
from hindcast.core.models.logprobs import SampleToScore, packs
from hindcast.core.models.policy import load_policy
from tools.base_policy.samples import encode

TOKENS_PER_FORWARD = 8192


class Exactness(NamedTuple):
    """Exact answers of a kind."""

    exact: int
    samples: int


@torch.inference_mode()
def exactness(folder: Path, samples: Sequence[DemonstratedStep]) -> dict[str, Exactness]:
    """Exact answers by source. An answer counts when each of its tokens is the likeliest after those before it:
    that is when greedy decoding gives exactly this answer.
    """
    policy = load_policy(folder)
    scored = [_scored(policy.tokenizer, sample) for sample in samples]
    found: dict[str, Exactness] = {}
    for pack in packs(scored, tokens_per_forward=TOKENS_PER_FORWARD):
        right = _right(policy.model, [scored[index] for index in pack])
        for index, exact in zip(pack, right, strict=True):
            before = found.get(samples[index].source, Exactness(0, 0))
            found[samples[index].source] = Exactness(before.exact + exact, before.samples + 1)
    return dict(sorted(found.items()))


def _scored(tokenizer: Any, sample: DemonstratedStep) -> SampleToScore:
    encoded = encode(tokenizer, sample)
    start = encoded.answered.index(True)
    return SampleToScore(encoded.ids[:start], encoded.ids[start:])


def _right(model: Any, samples: Sequence[SampleToScore]) -> list[bool]:
    length = max(len(sample.prompt_ids) + len(sample.action_ids) for sample in samples)
    ids = torch.zeros((len(samples), length), dtype=torch.long)
    for row, sample in enumerate(samples):
        whole = [*sample.prompt_ids, *sample.action_ids]
        ids[row, : len(whole)] = torch.tensor(whole)
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    right = []
    for row, sample in enumerate(samples):
        start = len(sample.prompt_ids)
        end = start + len(sample.action_ids)
        likeliest = model.get_output_embeddings()(hidden[row, start - 1 : end - 1]).argmax(-1)
        right.append(bool((likeliest == ids[row, start:end]).all()))
    return right
