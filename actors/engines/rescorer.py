"""Verifies recorded answers against their weights: teacher-forced, token by token, with the recorded seed.

It checks every token in its recorded context, so that errors do not accumulate:
- Is its log-probability the recorded one?
- Is it the token that the recorded seed draws? The uniform number of the draw must fall into the token's share of the
  cumulative distribution (`batch.draw`). The distance by which it misses separates rounding from other causes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from hindcast.core.domain.sampling import Sampling
from hindcast.core.models.arithmetic import policy_device
from hindcast.core.models.logprobs import SampleToScore, distributions, packs
from hindcast.core.models.policy import load_policy, load_weights
from hindcast.core.models.vision import ProcessedImage
from hindcast.core.settings.computing import Device


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A step's answer as recorded."""

    prompt_ids: list[int]
    action_ids: list[int]
    logprobs: list[float]
    sampling: Sampling
    allowed: bytes = b""
    """Token sets packed by `core.grammar.allowed_tokens`."""
    pictures: tuple[ProcessedImage, ...] = ()
    """Pictures in its prompt, in order."""


class Rescored(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of an answer with its weights; both lists per token."""

    differences: list[float]
    """Absolute difference between computed and recorded log-probability."""
    misses: list[float]
    """Distance of the draw from the token's share, in probability; 0 where the seed draws this token. For greedy answers:
    how far its log-probability is below the likeliest token's.
    """


class Rescorer:
    """A policy for rescoring answers. Raises ModelFileError when its folder cannot be loaded."""

    def __init__(
        self, folder: Path, *, threads: int, tokens_per_forward: int, device: Device = "cpu"
    ) -> None:
        torch.set_num_threads(threads)
        self._model: Any = load_policy(folder, device=policy_device(device)).model
        self._tokens_per_forward = tokens_per_forward

    def load(self, weights: Path) -> None:
        """Load these weights. Raises ModelFileError when they do not fit."""
        load_weights(self._model, weights)

    @torch.inference_mode()
    def rescore(self, answers: Sequence[GivenAnswer]) -> list[Rescored]:
        """Compare each answer with the loaded weights, in order."""
        rescored: dict[int, Rescored] = {}
        for temperature in sorted({answer.sampling.temperature for answer in answers}):
            indices = [i for i, answer in enumerate(answers) if answer.sampling.temperature == temperature]
            samples = [
                SampleToScore(given.prompt_ids, given.action_ids, given.allowed, given.pictures)
                for given in (answers[i] for i in indices)
            ]
            for pack in packs(samples, tokens_per_forward=self._tokens_per_forward):
                pack_logprobs = distributions(
                    self._model, [samples[index] for index in pack], temperature=temperature
                )
                for index, logprobs in zip(pack, pack_logprobs, strict=True):
                    rescored[indices[index]] = _rescored(answers[indices[index]], logprobs)
        return [rescored[index] for index in range(len(answers))]


def _rescored(answer: GivenAnswer, logprobs: torch.Tensor) -> Rescored:
    """Compare one answer with its sampling distributions  # [tokens, vocabulary]."""
    tokens = torch.tensor(answer.action_ids)[:, None]
    sampled = logprobs.gather(-1, tokens)[:, 0]
    recorded = torch.tensor(answer.logprobs, dtype=torch.float32)
    misses = (
        logprobs.max(-1).values - sampled
        if answer.sampling.temperature == 0
        else _misses(logprobs, tokens, answer.sampling)
    )
    return Rescored(differences=(sampled - recorded).abs().tolist(), misses=misses.tolist())


def _misses(logprobs: torch.Tensor, tokens: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    uniforms = np.random.Generator(np.random.PCG64(sampling.seed)).random(sampling.max_tokens)
    cumulative = logprobs.double().exp().cumsum(-1)
    draws = torch.from_numpy(uniforms[: len(tokens)])
    thresholds = draws * cumulative[:, -1]
    cumulative_above = cumulative.gather(-1, tokens)[:, 0]
    cumulative_below = torch.where(
        tokens[:, 0] > 0,
        cumulative.gather(-1, (tokens - 1).clamp(min=0))[:, 0],
        torch.zeros_like(cumulative_above),
    )
    short, far = cumulative_below - thresholds, thresholds - cumulative_above
    return torch.maximum(short, far).clamp(min=0.0)
