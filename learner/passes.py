"""How samples share forward passes. A function of the samples alone, so that a recomputation packs them the same way."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from core.arrays import unpack_ids
from core.models.scoring import Scored, packs, score_pack
from learner.episodes import Sample


class ForwardPass(NamedTuple):
    """Samples scored together."""

    indices: list[int]
    """Which of the samples given."""
    scored: list[Scored]
    temperature: float
    joined: bool = False
    """Whether they stand in one row without padding."""

    def log_probs(self, model: Any) -> list[torch.Tensor]:
        """Log-probabilities of each sample's action tokens at its sampling temperature, differentiable.

        Invariant 4: under the sets of tokens that they were drawn from, where those were recorded.
        """
        return score_pack(model, self.scored, temperature=self.temperature, joined=self.joined)


def forward_passes(
    samples: Sequence[Sample], *, tokens_per_forward: int, joined: bool = False
) -> list[ForwardPass]:
    """Cut samples into passes of at most so many tokens, those of one temperature together, shortest first.

    Padding counts, where they are not `joined` in one row.
    """
    found: list[ForwardPass] = []
    for temperature in sorted({sample.temperature for sample in samples}):
        indices = [index for index, sample in enumerate(samples) if sample.temperature == temperature]
        scored = [
            Scored(
                unpack_ids(samples[index].prompt_ids).tolist(),
                unpack_ids(samples[index].action_ids).tolist(),
                samples[index].allowed,
            )
            for index in indices
        ]
        found += [
            ForwardPass([indices[m] for m in members], [scored[m] for m in members], temperature, joined)
            for members in packs(scored, tokens_per_forward=tokens_per_forward, joined=joined)
        ]
    return found
