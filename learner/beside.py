"""What trains a model beside the policy, such as a critic: one class per model, made when its first batch begins."""

from pathlib import Path
from typing import Any, Protocol

from core.settings import LearnerSettings
from events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from learner.episodes import Batch
from learner.learned import Learned


class Beside(Protocol):
    """A model beside the policy under training. Deterministic like the policy's; every call may block."""

    learned: Learned

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch of this model."""
        ...

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch of it; the model has changed by what the fact says."""
        ...


class MakeBeside(Protocol):
    """Builds the model before its first update."""

    def __call__(self, folder: Path, base: Any, settings: LearnerSettings, *, seed: int) -> Beside:
        """`base`: the policy's model with the base weights, to copy from; `seed`: of what is drawn at random."""
        ...


MODELS: dict[str, MakeBeside] = {}
"""By `batch.planned.model`."""
