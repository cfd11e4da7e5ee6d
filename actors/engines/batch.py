"""The synchronous core of the in-process engine: admits prompts, draws tokens and releases finished answers.

Each prompt is prefilled alone, without padding and without what another one before began with; decoding is one forward pass for all. Each request has its own random
generator, so an answer does not depend on the rest of the batch, except for floating-point rounding.
"""

from collections.abc import Collection, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from hindcast.actors.engines.base import Constraint, Generation
from hindcast.actors.engines.guide import FormGuide, Guide, RecordedGuide, Vocabulary
from hindcast.actors.engines.kept_prompts import KeptPrompts
from hindcast.actors.engines.lfm2 import Lfm2Slots, is_plain_lfm2
from hindcast.actors.engines.slots import CacheSlots, Slots
from hindcast.core.domain.sampling import Sampling
from hindcast.core.grammar.allowed_tokens import Allowed, pack_allowed
from hindcast.core.models.logprobs import restrict
from hindcast.core.models.vision import ProcessedImage

Key = TypeVar("Key")
"""The caller's key of a request."""


class DecodingRow(Generic[Key]):
    """One answer being decoded."""

    def __init__(self, key: Key, sampling: Sampling, guide: Guide | None) -> None:
        self.key = key
        self.sampling = sampling
        self.guide = guide
        self.allowed: list[Allowed] = []
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.draws = np.random.Generator(np.random.PCG64(sampling.seed)).random(sampling.max_tokens)

    def generation(self, stops: frozenset[int]) -> Generation:
        """The finished answer."""
        return Generation(
            token_ids=self.tokens,
            logprobs=self.logprobs,
            versions=self.versions,
            finish="stop" if self.tokens[-1] in stops else "length",
            allowed=pack_allowed(self.allowed),
        )


class DecodingBatch(Generic[Key]):
    """Answers that are decoded together."""

    def __init__(self, model: Any, *, tokenizer: Any, stops: Collection[int], slots: int) -> None:
        """`stops`: tokens that end an answer."""
        self.stops = frozenset(stops)
        self._tokenizer = tokenizer
        self._vocabulary: Vocabulary | None = None
        """Built from the tokenizer for the first constraint."""
        self._room = slots
        self._slots: Slots = Lfm2Slots(model, slots) if is_plain_lfm2(model) else CacheSlots(model, slots)
        self._rows: list[DecodingRow[Key]] = []
        self._prompts = KeptPrompts(self._slots)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> tuple[DecodingRow[Key], ...]:
        """The answers being decoded."""
        return tuple(self._rows)

    @property
    def full(self) -> bool:
        """Whether no further request fits."""
        return len(self._rows) >= self._room

    @torch.inference_mode()
    def admit(
        self,
        key: Key,
        prompt_ids: list[int],
        sampling: Sampling,
        version: int,
        constraint: Constraint | None = None,
        pictures: Sequence[ProcessedImage] = (),
    ) -> DecodingRow[Key] | None:
        """Prefill a prompt with its pictures, and draw its first token; returns the row if that token ended it.

        Raises EngineFailed or ModelFileError when the constraint cannot be applied; nothing is admitted then.
        """
        states, logits = self._prompts.prefill(prompt_ids, pictures)
        row = DecodingRow(key, sampling, self._guide(constraint, logits.shape[-1], sampling.max_tokens))
        if self._extend([row], logits, version):
            return row
        self._slots.admit(states, len(prompt_ids))
        self._rows.append(row)
        return None

    @torch.inference_mode()
    def step(self, version: int) -> list[DecodingRow[Key]]:
        """Draw one more token for every row; returns the rows that ended, which have left the batch."""
        logits = self._slots.step(torch.tensor([row.tokens[-1] for row in self._rows]))
        ended_rows = self._extend(self._rows, logits, version)
        for row in ended_rows:
            self._remove(row)
        return ended_rows

    @torch.inference_mode()
    def drop(self, key: Key) -> None:
        """Remove a request from the batch, if it is there."""
        for row in self._rows:
            if row.key is key:
                self._remove(row)
                return

    @torch.inference_mode()
    def refresh(self) -> None:
        """Note that the model's weights have changed. Call it only while the batch is empty."""
        self._prompts.clear()
        self._slots.refresh()

    def _guide(self, constraint: Constraint | None, size: int, max_tokens: int) -> Guide | None:
        if constraint is None:
            return None
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(self._tokenizer, size=size, end_tokens=sorted(self.stops))
        if isinstance(constraint, bytes):
            return RecordedGuide(constraint, self._vocabulary)
        return FormGuide(constraint, self._vocabulary, max_tokens=max_tokens)

    def _remove(self, row: DecodingRow[Key]) -> None:
        slot = self._rows.index(row)
        moved = self._slots.release(slot)
        self._rows[slot] = self._rows[moved]
        self._rows.pop()

    def _extend(
        self, rows: list[DecodingRow[Key]], logits: torch.Tensor, version: int
    ) -> list[DecodingRow[Key]]:
        """Draw a token for each row from its logits  # [rows, vocabulary]; returns the rows that ended."""
        allowed = [None if row.guide is None else row.guide.allowed() for row in rows]
        tokens, logprobs = draw(
            restrict(logits.cpu(), allowed),  # a GPU has no cumulative sum in a fixed order
            temperatures=[row.sampling.temperature for row in rows],
            uniforms=[float(row.draws[len(row.tokens)]) for row in rows],
        )
        ended_rows = []
        for row, token, logprob, allowed_tokens in zip(rows, tokens, logprobs, allowed, strict=True):
            if row.guide is not None and allowed_tokens is not None:
                row.guide.take(token)
                row.allowed.append(allowed_tokens)
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.versions.append(version)
            if token in self.stops or len(row.tokens) == row.sampling.max_tokens:
                ended_rows.append(row)
        return ended_rows


def draw(
    logits: torch.Tensor, *, temperatures: list[float], uniforms: list[float]
) -> tuple[list[int], list[float]]:
    """Draw one token per row of logits  # [rows, vocabulary], by inverting the cumulative distribution at `uniforms`.

    Returns token ids and their log-probabilities under the sampling distribution. Temperature 0 takes the likeliest token
    and reports its log-probability at temperature 1. A logit of -inf is never drawn.
    """
    greedy = torch.tensor([temperature == 0 for temperature in temperatures])
    divisor = torch.tensor([temperature or 1.0 for temperature in temperatures])
    logprobs = torch.log_softmax(logits / divisor[:, None], dim=-1)
    cumulative = logprobs.double().exp().cumsum(-1)
    total = cumulative[:, -1:]
    # a product rounded up to the total would be past the last share
    largest_threshold = torch.nextafter(total, torch.zeros_like(total))
    thresholds = torch.minimum(
        torch.tensor(uniforms, dtype=torch.float64)[:, None] * total, largest_threshold
    )
    sampled = torch.searchsorted(cumulative, thresholds, right=True)[:, 0]
    tokens = torch.where(greedy, logits.argmax(-1), sampled)
    return tokens.tolist(), logprobs.gather(-1, tokens[:, None])[:, 0].tolist()
