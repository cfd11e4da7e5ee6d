"""What the learner knows about the log: the state of the replay buffer, changed only by the projection in `buffer`."""

from dataclasses import dataclass, field
from typing import Any

from hindcast.core.plugins import PluginIdentity
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    RunStarted,
    SnapshotSaved,
    WeightsPublished,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.envelope import BlobRef
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.learner.auxiliary.relabeler_examples import RelabelerExamples
from hindcast.learner.auxiliary.reward_model_examples import RewardModelExamples
from hindcast.learner.buffer.records import Batch, Episode, Group, RelabelledDemonstration


@dataclass(frozen=True, slots=True)
class AuxiliaryModelState:
    """A model beside the policy, such as a critic."""

    version: int = 0
    """Latest published; 0: none."""
    updates: int = 0
    weights: dict[int, WeightsPublished] = field(default_factory=dict)
    """Published versions whose weights were not released."""


@dataclass(slots=True)
class BufferState:
    """What the log says about training up to `position`."""

    position: int = 0
    latest: bytes = b""
    """sha256 of the event at `position`."""
    digest: RollingDigest = field(default_factory=RollingDigest)
    """Over all stored bytes up to `position`."""
    started: RunStarted | None = None
    resolved: dict[str, Any] = field(default_factory=dict)
    """The settings in force, as plain values."""
    settings: Settings = field(default_factory=Settings)
    fingerprint: Fingerprint | None = None
    """Of the latest start of the run."""
    plugins: tuple[PluginIdentity, ...] = ()
    """That the run began with, or its fork."""
    last_learner: int = 0
    """Position of the last event of the learner's family; 0: none."""

    episodes: dict[str, Episode] = field(default_factory=dict)
    """Those that may still be trained on."""
    groups: dict[str, Group] = field(default_factory=dict)
    """Those that are not used up."""
    complete: dict[str, None] = field(default_factory=dict)
    """Ids of complete groups in the order of completion."""
    requests: int = 0
    """Episodes requested so far, of any origin."""
    shown: int = 0
    """Demonstrations requested so far, each counted once however often it is tried."""
    settled_groups: dict[str, int] = field(default_factory=dict)
    """Groups that are used up, and `requests` then, oldest first: as long as a request may still come for them."""
    successes: dict[str, list[Episode]] = field(default_factory=dict)
    """Remembered for rehearsal, by family, oldest first; they entered when their group had been used up."""
    stored: dict[str, list[Episode]] = field(default_factory=dict)
    """For success replay, by task, oldest first; they entered when they were used up, so never before their own batch."""
    hindsight: list[RelabelledDemonstration] = field(default_factory=list)
    """Relabelled demonstrations, oldest first, `learner.hsl_memory` at most."""
    pending: dict[str, list[RelabelledDemonstration]] = field(default_factory=dict)
    """Those of episodes that no judge has spoken about yet, or while another algorithm trains; gone with the episode."""

    phase: list[str] = field(default_factory=list)
    """Episodes of the phase that the critic was trained on and the policy was not yet."""
    earlier: dict[str, Episode] = field(default_factory=dict)
    """Episodes of earlier phases that may be replayed, by task and outcome, oldest first."""
    perplexities: dict[int, float] = field(default_factory=dict)
    """Of their steps' actions under the policy of now, by position, as far as they were scored."""

    version: int = 0
    """Latest published policy version."""
    updates: int = 0
    batches: int = 0
    """Batches planned so far."""
    weights: dict[int, WeightsPublished] = field(default_factory=dict)
    """Published versions of the policy whose weights were not released."""
    cloned_version: int = 0
    """The policy that reinforcement learning started from: the last one that came of cloning, in hindsight or not; 0: the
    base policy."""
    references: list[int] = field(default_factory=list)
    """Versions that a batch took its KL to, oldest first."""
    models: dict[str, AuxiliaryModelState] = field(default_factory=dict)
    """Models beside the policy, by name."""
    outcomes: RewardModelExamples = field(default_factory=RewardModelExamples)
    """What the outcome reward model learns from."""
    lessons: RelabelerExamples = field(default_factory=RelabelerExamples)
    """What the learned relabeler learns from."""
    checkpoints: list[CheckpointSaved] = field(default_factory=list)
    """Not released, oldest first."""
    snapshots: dict[str, list[SnapshotSaved]] = field(default_factory=dict)
    """Not released, by projection, oldest first."""
    released: dict[str, BlobRef] = field(default_factory=dict)
    """The latest `batches.RELEASED_KEPT` released blobs by sha256."""
    batch: Batch | None = None
    plan: BatchPlanned | None = None
    """The plan of `batch`."""
    checkpointed: int = 0
    """Batches covered by the newest checkpoint, released or not."""

    def beside(self, model: str) -> AuxiliaryModelState:
        """How a model beside the policy stands."""
        return self.models.get(model, AuxiliaryModelState())
