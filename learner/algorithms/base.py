"""What an algorithm is: a loss over single samples whose shares were fixed beforehand.

A sample's loss depends on nothing but its own terms, so samples may be packed into forward passes in any way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from hindcast.core.rl.importance_weights import TokenCorrection
from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.buffer.records import Sample


@dataclass(frozen=True, slots=True)
class SampleTerms:
    """What one sample brings into the loss besides the policy's own log-probabilities. Constant during an update."""

    sample: Sample
    advantage: float
    share: float
    """Of one action token in the loss."""
    cloning_share: float
    """Of one action token in the cloning term; 0 unless its episode succeeded and the term is on."""
    behaviour: NDArray[np.float32]
    """Recorded log-probabilities  # [tokens]."""
    proximal: NDArray[np.float32]
    """The learner's own when the batch started  # [tokens]."""
    reference: NDArray[np.float32] | None
    """Of the KL reference  # [tokens]."""
    correction: TokenCorrection
    rehearsed: bool = False
    """Of a remembered success: old by design, so nothing is corrected and no KL taken."""
    valued: bool = False
    """Whether the advantage came from a critic."""
    first: int = 0
    """Tokens before it are not trained on; the arrays begin with it, counts and shares are those of all tokens."""
    constant: float = 0.0
    """What the sample adds to the loss beside what has a gradient."""

    @property
    def counts(self) -> bool:
        """Whether it has any part in the loss; a replayed episode's step may stand in a batch for its state alone."""
        return self.share > 0 or self.cloning_share > 0


class SampleLoss(NamedTuple):
    """One sample's part of the loss, and what there is to tell about it. Sums run over its action tokens."""

    loss: torch.Tensor
    """Scalar with gradient, shares applied."""
    policy: float
    """Policy term within the loss."""
    cloning: float
    """Cloning term within the loss."""
    kl: float
    """Sum of the k3 estimates."""
    surprisal: float
    """Sum of -log pi; on fresh samples its mean estimates the entropy."""
    ratio: float
    """Sum of pi / mu."""
    clipped: int
    """Tokens whose policy term is clipped and has no gradient."""
    contributing: int
    """Tokens neither left out by the correction nor clipped."""


SILENT = SampleLoss(
    loss=torch.zeros(()), policy=0.0, cloning=0.0, kl=0.0, surprisal=0.0, ratio=0.0, clipped=0, contributing=0
)
"""Of a sample that has no part in the loss."""


class EpisodePart(NamedTuple):
    """One episode as it stands in a mini-batch."""

    tokens: EpisodeTokens
    succeeded: bool
    rehearsed: bool = False
    """A remembered success: only imitated."""
    kept: bytes | None = None
    """Per step: 1 where it is trained on; None: all are."""
    step_weights: tuple[float, ...] | None = None
    """Of a relabelled demonstration: what each step counts."""


CurrentLogProbs = Callable[[Sequence[Sample]], Sequence[NDArray[np.float32]]]
"""Log-probabilities of samples' action tokens, those trained on or not, under the weights an update starts from."""


class Algorithm(Protocol):
    """One way to learn from a batch."""

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """Share of one token of each sample, in order, in the loss and in its cloning term."""
        ...

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """The loss of one sample from its action tokens' log-probabilities under the policy  # [tokens], with gradient."""
        ...


@runtime_checkable
class Weighing(Protocol):
    """An algorithm whose samples get their weight from the policy as an update starts: how far it prefers one to another."""

    def weigh(self, terms: Sequence[SampleTerms], current: CurrentLogProbs) -> Sequence[SampleTerms]:
        """The terms of a mini-batch, in order, with what depends on the weights the update starts from."""
        ...


class MakeAlgorithm(Protocol):
    """A recipe's `learner` section to an algorithm."""

    def __call__(self, settings: LearnerSettings) -> Algorithm:
        """Build it."""
        ...
