"""What trains a model beside the policy, such as a critic: one class per model, made when its first batch begins."""

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
    """A model beside the policy under training. Deterministic like the policy's; every call may block."""

    learned: TrainedModel

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch of this model."""
        ...

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch of it; the model has changed by what the fact says."""
        ...


class MakeAuxiliaryTrainer(Protocol):
    """Builds the model before its first update."""

    def __call__(
        self, folder: Path, base: Any, settings: LearnerSettings, *, seed: int, check: Callable[[], None]
    ) -> AuxiliaryTrainer:
        """`base`: a model of the policy's with the base weights, to be taken over; `seed`: of what is drawn at random.

        `check` is to be called before every forward pass: it raises where the computation was asked to stop.
        """
        ...


MODELS: dict[str, MakeAuxiliaryTrainer] = {
    CRITIC: CriticTraining,
    ORM: RewardModelTraining,
    RELABELER: RelabelerTraining,
}
"""By `batch.planned.model`."""
