"""Interface of what is trained, for the learner and `verify`: events in, events out, and a state with a digest.

`learner.training.Training` implements it. A simulation of thousands of schedules implements it without gradients, to
test the learner's planning, fencing and recovery.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Protocol

from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.envelope import BlobRef
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import BlobSink, Checkpoint, Saved


class Trainer(Protocol):
    """The models under training. Deterministic: equal plans on equal samples give equal events. Every call may block."""

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch with its plan and samples."""
        ...

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch. The state changes as the returned event says."""
        ...

    def score(self, samples: Sequence[Sample], *, tokens_per_forward: int) -> list[float]:
        """Perplexity of each sample's action under the current policy; packing affects its last bits."""
        ...

    def weights(self, model: str) -> bytes:
        """A model's weights for publication."""
        ...

    def save(self, blobs: BlobSink, *, batch: int, version: int) -> Saved:
        """Store a checkpoint of the current state. Raises DiskFull; a repeated call starts over."""
        ...

    def restore(self, checkpoint: Checkpoint) -> None:
        """Load a checkpoint. Raises CheckpointCorrupt."""
        ...


class MakeTrainer(Protocol):
    """Builds the trainer of a run, before its first update."""

    def __call__(
        self,
        folder: Path,
        base: BlobRef,
        *,
        blobs: BlobStore,
        settings: LearnerSettings,
        stop: Event | None = None,
    ) -> Trainer:
        """Make the trainer. `folder`: the policy that the base weights `base` belong to. `stop`: set to end a computation."""
        ...
