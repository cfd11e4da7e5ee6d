"""What the learner and `verify` need of the thing that is trained: facts in, facts out, and a state with a digest.

`learner.training.Training` is the one that trains. The port exists because a simulation of thousands of schedules
needs the learner's own planning, fencing and recovery, and no gradients.
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
    """The models under training. Deterministic: equal plans on equal samples give equal facts. Every call may block."""

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch."""
        ...

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch of it; the state has changed by what the fact says."""
        ...

    def score(self, samples: Sequence[Sample], *, tokens_per_forward: int) -> list[float]:
        """Perplexity of each sample's action under the policy of now; how samples are packed changes its last bits."""
        ...

    def weights(self, model: str) -> bytes:
        """What is published of a model."""
        ...

    def save(self, blobs: BlobSink, *, batch: int, version: int) -> Saved:
        """Store a checkpoint of the state of now. Raises DiskFull; asked again, it begins anew."""
        ...

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over a checkpoint. Raises CheckpointCorrupt."""
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
        """`folder`: the policy that the base weights `base` belong to; `stop`: set when a computation is to end."""
        ...
