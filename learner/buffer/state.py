"""The state of the replay buffer: what the learner knows about the log. Only the projection changes it."""

from dataclasses import dataclass, field
from typing import Any

from hindcast.core.plugins import PluginIdentity
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    DecisionKept,
    RunStarted,
    SnapshotSaved,
    WeightsPublished,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.envelope import BlobRef
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.learner.buffer.records import Batch, Episode, Group, RelabelledDemonstration
from hindcast.learner.buffer.training_sets import RelabelerExamples, RewardModelExamples


@dataclass(frozen=True, slots=True)
class AuxiliaryModelState:
    """State of an auxiliary model, such as the critic."""

    version: int = 0
    """Latest published version; 0: none."""
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
    """Rolling digest of all stored bytes up to `position`."""
    started: RunStarted | None = None
    resolved: dict[str, Any] = field(default_factory=dict)
    """Settings in force, as plain values."""
    settings: Settings = field(default_factory=Settings)
    fingerprint: Fingerprint | None = None
    """Of the latest start of the run."""
    plugins: tuple[PluginIdentity, ...] = ()
    """That the run began with, or its fork."""
    withheld: set[str] = field(default_factory=set)
    """Episodes that a derived run leaves out."""
    keeps_plans: bool = False
    """Whether a derived run keeps its parent's decisions, less what is left out."""
    kept: DecisionKept | None = None
    """The decision that is due to be kept."""
    ending: bool = False
    """Whether the run is about to end: nothing more is trained until it is resumed."""
    last_learner: int = 0
    """Position of the last event of the learner's family; 0: none."""

    episodes: dict[str, Episode] = field(default_factory=dict)
    """Episodes that may still be trained on."""
    groups: dict[str, Group] = field(default_factory=dict)
    """Groups that are not used up."""
    complete: dict[str, None] = field(default_factory=dict)
    """Ids of complete groups in the order of completion."""
    requests: int = 0
    """Episodes requested so far, without those of evaluations."""
    shown: int = 0
    """Demonstrations requested so far; further attempts do not count."""
    settled_groups: dict[str, int] = field(default_factory=dict)
    """Used-up groups, oldest first, with the value of `requests` then; kept while a request for them may still arrive."""
    successes: dict[str, list[Episode]] = field(default_factory=dict)
    """Successes for rehearsal by family, oldest first; they enter when their group is used up."""
    stored: dict[str, list[Episode]] = field(default_factory=dict)
    """Successes for replay by task, oldest first; they enter when used up, so never before their own batch."""
    hindsight: list[RelabelledDemonstration] = field(default_factory=list)
    """Relabeled demonstrations, oldest first, `hsl_memory` at most."""
    pending: dict[str, list[RelabelledDemonstration]] = field(default_factory=dict)
    """Relabeled demonstrations of episodes without a verdict, or recorded while another algorithm trains; dropped with the episode."""

    phase: list[str] = field(default_factory=list)
    """Episodes of the phase that the critic was trained on and the policy was not yet."""
    earlier: dict[str, Episode] = field(default_factory=dict)
    """Episodes of earlier phases that may be replayed, by task and outcome, oldest first."""
    first_values: dict[int, float] = field(default_factory=dict)
    """Values of the phase's states, by position, as the critic estimated them before it first learned from them; empty unless
    `phase_values` asks for them."""
    perplexities: dict[int, float] = field(default_factory=dict)
    """Perplexities of their steps' actions under the current policy, by position, as far as scored."""

    version: int = 0
    """Latest published policy version."""
    updates: int = 0
    batches: int = 0
    """Batches planned so far."""
    weights: dict[int, WeightsPublished] = field(default_factory=dict)
    """Published versions of the policy whose weights were not released."""
    cloned_version: int = 0
    """The version that reinforcement learning started from: the last that came from cloning or HSL; 0: the base policy."""
    references: list[int] = field(default_factory=list)
    """Reference versions of batches (KL penalty), oldest first."""
    models: dict[str, AuxiliaryModelState] = field(default_factory=dict)
    """Auxiliary models by name."""
    outcomes: RewardModelExamples = field(default_factory=RewardModelExamples)
    """Training set of the outcome reward model."""
    lessons: RelabelerExamples = field(default_factory=RelabelerExamples)
    """Training set of the learned relabeler."""
    checkpoints: list[CheckpointSaved] = field(default_factory=list)
    """Checkpoints not released, oldest first."""
    snapshots: dict[str, list[SnapshotSaved]] = field(default_factory=dict)
    """Snapshots not released, by projection, oldest first."""
    released: dict[str, BlobRef] = field(default_factory=dict)
    """The latest `batches.RELEASED_KEPT` released blobs by sha256."""
    batch: Batch | None = None
    plan: BatchPlanned | None = None
    """The plan of `batch`."""
    checkpointed: int = 0
    """Batches covered by the newest checkpoint, released or not."""

    def auxiliary_model(self, model: str) -> AuxiliaryModelState:
        """State of an auxiliary model."""
        return self.models.get(model, AuxiliaryModelState())
