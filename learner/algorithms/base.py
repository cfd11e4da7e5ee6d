"""What a loss is: a sum over single samples whose shares were fixed beforehand.

A sample's loss depends on nothing but its own terms, so samples may be packed into forward passes in any way. Modules of
algorithms import torch where a loss is computed and not before: see `core.rl.algorithm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hindcast.core.rl.importance_weights import TokenCorrection
from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.buffer.records import Sample

if TYPE_CHECKING:
    import torch


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
    """Tokens whose policy term is clipped. They have no gradient, except in CISPO."""
    contributing: int
    """Tokens neither left out by the correction nor clipped."""


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
    truncated: bool = False
    """It ended at its task's limit of steps."""


CurrentLogProbs = Callable[[Sequence[Sample]], Sequence[NDArray[np.float32]]]
"""Log-probabilities of samples' action tokens, those trained on or not, under the weights an update starts from."""


@runtime_checkable
class Loss(Protocol):
    """The loss of a batch's samples."""

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """Share of one token of each sample, in order, in the loss and in its cloning term."""
        ...

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """The loss of one sample from its action tokens' log-probabilities under the policy  # [tokens], with gradient."""
        ...


@runtime_checkable
class Weighing(Protocol):
    """A loss whose samples get their weight from the policy as an update starts: how far it prefers one to another."""

    def weigh(self, terms: Sequence[SampleTerms], current: CurrentLogProbs) -> Sequence[SampleTerms]:
        """The terms of a mini-batch, in order, with what depends on the weights the update starts from."""
        ...


@runtime_checkable
class Valuing(Protocol):
    """A loss whose steps get their advantages from the critic that was trained before."""

    def step_advantages(
        self, planned: Sequence[PlannedEpisode], values: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """One list per planned episode, one advantage per step. `values`: of the states, in the same order."""
        ...


def cloning_episodes_per_batch(settings: Settings) -> int:
    """Of an algorithm that fills `cloning_batch` samples with whole successes: an episode has at least one sample.

    A group more, so that a group can be begun while one is missing.
    """
    return settings.learner.cloning_batch + settings.curriculum.group_size


def check_demonstrations(settings: Settings) -> list[str]:
    """What an algorithm needs that learns at demonstrated tasks alone."""
    name, problems = settings.learner.algorithm, []
    if settings.curriculum.demonstrations == 0:
        problems.append(
            f"curriculum.demonstrations = 0 leaves learner.algorithm = {name!r} nothing to imitate or to prefer"
        )
    if settings.evolution.generator:
        problems.append(
            f"learner.algorithm = {name!r} learns from demonstrated tasks, and nobody demonstrates those of "
            f"evolution.generator = {settings.evolution.generator!r}: leave it empty"
        )
    return problems
