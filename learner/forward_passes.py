"""How samples share forward passes. Depends on the samples alone, so that a recomputation packs them the same way."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.models.logprobs import SampleToScore, packs, score_pack
from hindcast.events.catalogue.episode import ShownPicture
from hindcast.learner.buffer.records import Sample
from hindcast.learner.screenshots import ScreenshotStore


class ForwardPass(NamedTuple):
    """Samples that are scored in one forward pass."""

    indices: list[int]
    """Indices of its samples in the sequence given."""
    scored: list[SampleToScore]
    temperature: float
    joined: bool = False
    """Whether the samples share one row without padding."""
    shown: Sequence[Sequence[ShownPicture]] = ()
    """Pictures in the prompt of each sample; empty: no sample has any."""
    album: ScreenshotStore | None = None
    """Store of those pictures."""

    def log_probs(self, model: Any) -> list[torch.Tensor]:
        """Log-probabilities of each sample's action tokens at its sampling temperature, differentiable.

        Invariant 4: under the sets of tokens that they were drawn from, where recorded. Pictures are processed here and not
        earlier: those of a whole batch would take gigabytes.

        Raises:
            BlobMissing, BlobCorrupt, PictureUnreadable: a picture cannot be read as it was shown.
        """
        scored = self.scored
        if self.album is not None and self.shown:
            scored = [
                one._replace(pictures=self.album.seen(shown))
                for one, shown in zip(scored, self.shown, strict=True)
            ]
        return score_pack(model, scored, temperature=self.temperature, joined=self.joined)


def forward_passes(
    samples: Sequence[Sample],
    *,
    tokens_per_forward: int,
    joined: bool = False,
    album: ScreenshotStore | None = None,
) -> list[ForwardPass]:
    """Split samples into passes of at most `tokens_per_forward` tokens, grouped by temperature, shortest first.

    Padding counts unless samples are `joined` in one row. `album`: holds the pictures in their prompts.
    """
    seeing = any(sample.pictures for sample in samples)
    found: list[ForwardPass] = []
    for temperature in sorted({sample.temperature for sample in samples}):
        indices = [index for index, sample in enumerate(samples) if sample.temperature == temperature]
        scored = [
            SampleToScore(
                unpack_ids(samples[index].prompt_ids).tolist(),
                unpack_ids(samples[index].action_ids).tolist(),
                samples[index].allowed,
            )
            for index in indices
        ]
        found += [
            ForwardPass(
                [indices[m] for m in members],
                [scored[m] for m in members],
                temperature,
                joined,
                [samples[indices[m]].pictures for m in members] if seeing else (),
                album,
            )
            for members in packs(scored, tokens_per_forward=tokens_per_forward, joined=joined)
        ]
    return found
