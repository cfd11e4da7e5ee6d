"""Interface of the auxiliary models' trainers (critic, reward model, relabeler), and the table of them by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hindcast.core.rl.combined_state import CRITIC, ORM, RELABELER
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.learner.auxiliary.critic import CriticTraining
from hindcast.learner.auxiliary.relabeler import RelabelerTraining
from hindcast.learner.auxiliary.reward_model import RewardModelTraining
from hindcast.learner.buffer.records import Batch
from hindcast.learner.trained_model import TrainedModel


class AuxiliaryTrainer(Protocol):
    """Trains one auxiliary model. Deterministic like the policy's trainer; every call may block."""

    learned: TrainedModel

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch of this model."""
        ...

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch. The model changes as the returned event says."""
        ...


class MakeAuxiliaryTrainer(Protocol):
    """Builds the trainer before its model's first update."""

    def __call__(
        self, folder: Path, base: Any, settings: LearnerSettings, *, seed: int, check: Callable[[], None]
    ) -> AuxiliaryTrainer:
        """Make the trainer when its first batch begins.

        `base`: a model with the policy's base weights, owned by the trainer from here on. `seed`: for random initial weights.
        `check`: called before every forward pass; raises if the computation was asked to stop.
        """
        ...


MODELS: dict[str, MakeAuxiliaryTrainer] = {
    CRITIC: CriticTraining,
    ORM: RewardModelTraining,
    RELABELER: RelabelerTraining,
}
"""Trainers by `batch.planned.model`."""
