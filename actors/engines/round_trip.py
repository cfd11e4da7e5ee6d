"""Checks that a policy's answers can be trained on: log-probabilities from batched sampling and from scoring must agree.

It finds what no configuration shows: logits that change after the head (soft caps, scales), layers whose state the
engine cannot keep, answers that depend on the rest of the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch

from hindcast.actors.engines.batch import DecodingBatch, DecodingRow
from hindcast.core.domain.sampling import Sampling
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import LoadedPolicy
from hindcast.core.models.vision import ProcessedImage

TOLERANCE = 1e-4
"""Largest difference between sampling and scoring, in float32; rounding alone gives about 1e-6."""
TOKENS = 12
SEED = 1


class RoundTripPrompt(NamedTuple):
    """A prompt to answer."""

    prompt_ids: Sequence[int]
    pictures: Sequence[ProcessedImage] = ()
    """Pictures in the prompt, in order."""


class RoundTrip(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of sampling and scoring over the same tokens."""

    answers: int
    tokens: int
    difference: float
    """Largest difference between the two log-probabilities of a token."""

    @property
    def agrees(self) -> bool:
        """Whether the difference is within rounding."""
        return self.difference <= TOLERANCE


def round_trip(policy: LoadedPolicy, prompts: Sequence[RoundTripPrompt]) -> RoundTrip:
    """Answer each prompt greedily and with a seed, all in one batch, and score the answers.

    Use short prompts: on a CPU a model of half a billion parameters scores a few dozen tokens per second.

    Raises ModelFileError when the engine cannot serve this architecture.
    """
    samplings = [
        Sampling(temperature=temperature, max_tokens=TOKENS, seed=SEED) for temperature in (0.0, 1.0)
    ]
    requests = [(prompt, sampling) for prompt in prompts for sampling in samplings]
    batch: DecodingBatch[int] = DecodingBatch(
        policy.model, tokenizer=policy.tokenizer, stops=policy.stops, slots=len(requests)
    )
    ended_rows: list[DecodingRow[int]] = []
    for number, (prompt, sampling) in enumerate(requests):
        row = batch.admit(number, list(prompt.prompt_ids), sampling, 0, pictures=prompt.pictures)
        ended_rows += [] if row is None else [row]
    while batch:
        ended_rows += batch.step(0)
    samples = [
        SampleToScore(prompt.prompt_ids, row.tokens, pictures=prompt.pictures)
        for row, (prompt, _) in ((row, requests[row.key]) for row in ended_rows)
    ]
    with torch.inference_mode():
        scored = score(policy.model, samples, temperature=1.0, tokens_per_forward=2048)
    differences = [
        abs(float(value) - sampled)
        for row, values in zip(ended_rows, scored, strict=True)
        for value, sampled in zip(values, row.logprobs, strict=True)
    ]
    return RoundTrip(answers=len(ended_rows), tokens=len(differences), difference=max(differences))
