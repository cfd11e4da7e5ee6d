"""Facts about training. Invariant 3: the plan is in the log before its update is computed."""

import msgspec

from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.registry import fact
from hindcast.events.subjects import ADOPTION, LEARNER


class PlannedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One episode's part in a batch."""

    episode: str
    group: str
    reward: float
    """Reward of the verdict: the task result alone."""
    advantage: float
    """Advantage from the verdicts at `as_of`; 0 if a critic gives each step its own (`critic_version`)."""
    samples: int
    """Number of the batch's samples that are its steps, consecutive in the plan."""
    rehearsed: bool = False
    """Whether it is a stored success that is only imitated; its advantage is then 0."""
    format_term: float = 0.0
    """Added to the reward before the group is compared: negative for an unparsable action."""
    replaces: str | None = None
    """Member of `group` that this stored success of an earlier group replaces; the replaced one is `consumed`."""
    kept: bytes | None = None
    """For a replayed episode of an earlier phase: one byte per step, 1 if trained on, 0 if only needed for the value of the
    next state. None: all steps are trained on."""
    relabel: int | None = None
    """Index of the goal in its `episode.relabeled` that the episode demonstrates, up to the step that achieved it, or to the one
    that stops after it if there is one more sample; None: its own instruction."""
    step_weights: tuple[float, ...] | None = None
    """For a relabeled demonstration: weight of each step, its relevance to the goal; None: equal weights."""
    length_term: float = 0.0
    """Added to the reward when the group is compared: negative for an episode near its task's limit of steps (DAPO)."""
    step_advantages: tuple[float, ...] | None = None
    """Advantage of each of its samples (`branching`); None: each has `advantage`."""


@fact(
    "batch.planned",
    subject=LEARNER,
    roles="learner",
    version=8,
    refs={"as_of": "position", "episodes.episode": "episode", "consumed": "episode"},
)
class BatchPlanned(Fact, frozen=True, kw_only=True):
    """The plan of the next updates, fixed before they are computed."""

    batch: int
    """0, 1, 2 … within the run, over all models."""
    algorithm: str
    as_of: int
    """The plan is a function of the log up to this position."""
    log_digest: bytes
    """Rolling sha256 over all stored bytes up to `as_of`."""
    positions: bytes
    """uint64: positions of the step.taken events, in training order."""
    sample_digests: bytes
    """First 8 bytes of the sha256 of each sample's stored bytes, concatenated in the same order."""
    minibatches: bytes
    """int32: number of samples in each mini-batch, in order; each is one update."""
    episodes: tuple[PlannedEpisode, ...]
    consumed: tuple[str, ...]
    """Episodes that this batch uses up without training on them (groups with equal rewards, dropped members)."""
    seed: int
    version: int
    """Policy version at the start of the batch."""
    reference_version: int | None
    """Policy version of the KL reference."""
    proximal_version: int | None
    """Policy version of the proximal log-probabilities."""
    critic_version: int | None
    """Version of the critic that gives each step its advantage; None: each step has its episode's."""
    config_digest: str
    model: str = "policy"
    """The one model that the batch trains."""


class SampleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of the update's samples: four float32 arrays in the order of the mini-batch."""

    advantages: bytes
    weights: bytes
    """Share of the loss."""
    ratios: bytes
    """Mean importance ratio over the sample's action tokens."""
    masks: bytes
    """Fraction of action tokens that contributed."""


@fact("update.applied", subject=LEARNER, roles="learner", refs={"batch": "batch"})
class UpdateApplied(Fact, frozen=True, kw_only=True):
    """The learner applied one optimizer step."""

    update: int
    """1, 2, 3 … within the run: number of optimizer steps on this model."""
    model: str
    """`policy`, `critic`, `orm`, `relabeler`."""
    batch: int
    minibatch: int
    before: str
    """Digest of weights and optimizer state before the step; 64 hexadecimal characters, or empty: none was computed there
    (`learner.digest_every`)."""
    after: str
    """The same after the step."""
    inputs: str
    """Digest of the inputs: ids, behaviour log-probabilities, advantages, weights."""
    metrics: dict[str, float]
    samples: SampleReport
    duration_ms: float
    """Wall time. A batch's first update includes the reference and proximal log-probabilities of the whole batch."""
    cpu_ms: float
    """CPU time of all threads for the same work."""


@fact("update.skipped", subject=LEARNER, roles="learner", refs={"batch": "batch"})
class UpdateSkipped(Fact, frozen=True, kw_only=True):
    """An update was skipped because its gradient was not finite; weights and optimizer are unchanged."""

    update: int
    model: str
    batch: int
    minibatch: int
    reason: str
    state: str
    """Digest of the unchanged weights and optimizer state; empty: none was computed there."""


@fact(
    "samples.swept",
    subject=LEARNER,
    roles="learner",
    version=2,
    refs={"episodes": "episode", "as_of": "position"},
)
class SamplesSwept(Fact, frozen=True, kw_only=True):
    """Episodes were excluded from training."""

    episodes: tuple[str, ...]
    reason: str
    """`stale`, `undecided`, `empty`, `late`; for whole groups `agreed` (equal rewards), `alone`; for imitation
    `unsuccessful`; for pairs `successful`, `unpaired`; `unachieved`: no relabeled goal to learn from; `unrelabelled`: ended
    before a fork; `past`: demonstrations of the initial cloning only; `withheld`: left out of a derived run."""
    version: int
    as_of: int | None = None
    """The decision follows from the log up to this position; None in version 1: up to the event before this one."""


@fact("replay.scored", subject=LEARNER, roles="learner", refs={"version": "policy"})
class ReplayScored(Fact, frozen=True, kw_only=True):
    """The policy scored stored steps of earlier phases by perplexity, before training on a phase."""

    version: int
    """Newest policy version, which scored them."""
    positions: bytes
    """uint64: positions of their step.taken events."""
    perplexities: bytes
    """float32: perplexities of the recorded actions."""


@fact("decision.kept", subject=LEARNER, roles="learner", version=2)
class DecisionKept(Fact, frozen=True, kw_only=True):
    """A decision of the parent's learner, which a run that was derived with `keep` decides again, less what is left out.

    Positions are those of this run's log. One of the two is set.
    """

    plan: BatchPlanned | None = None
    swept: SamplesSwept | None = None


@fact("weights.published", subject=LEARNER, roles="learner")
class WeightsPublished(Fact, frozen=True, kw_only=True):
    """The learner published new weights. Invariant 6: no actor samples from them yet."""

    version: int
    model: str
    weights: BlobRef
    update: int


@fact(
    "checkpoint.saved",
    subject=LEARNER,
    roles="learner",
    version=2,
    refs={"update": "update", "version": "policy"},
)
class CheckpointSaved(Fact, frozen=True, kw_only=True):
    """The learner saved weights and optimizer state: a faster start, never the truth."""

    update: int
    batch: int
    version: int
    state: str
    """Digest as in `update.applied.after`; for several models the combined one (`core.rl.combined_state.combined`)."""
    blob: BlobRef
    shards: tuple[BlobRef, ...] = ()
    """With several learner processes: the part of each, by rank. `blob` holds the rest and names them."""

    @property
    def parts(self) -> tuple[BlobRef, ...]:
        """All blobs of the checkpoint. `blob`, which names the shards, is last and is released last."""
        return (*self.shards, self.blob)


@fact("weights.adopted", subject=ADOPTION, roles="actor", refs={"version": "policy"})
class WeightsAdopted(Fact, frozen=True, kw_only=True):
    """An actor adopted new weights and samples from them from now on."""

    actor: str
    version: int
    load_ms: float
