"""Facts about training. Invariant 3: the plan stands in the log before the update is computed."""

import msgspec

from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.registry import fact


class PlannedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One episode's part in a batch."""

    episode: str
    group: str
    reward: float
    """Of the verdict: the task result alone."""
    advantage: float
    """As computed from the verdicts at `as_of`; 0 where a critic gives each step its own (`critic_version`)."""
    samples: int
    """How many of the batch's samples are its steps, consecutive in the plan."""
    rehearsed: bool = False
    """A remembered success that is only imitated: it is compared with nobody, and its advantage is 0."""
    format_term: float = 0.0
    """Added to the reward before the group is compared: below 0 for an unparsable action."""
    replaces: str | None = None
    """The member of `group` that this stored success of an earlier group stands in for; that one is `consumed`."""
    kept: bytes | None = None
    """Of an episode of an earlier phase that is replayed: one byte per step, 1 where it is trained on, 0 where it is only
    there for the value of the state after a step. None: all steps are."""
    relabel: int | None = None
    """Which goal of its `episode.relabeled` the episode demonstrates, from its first step to where it achieved it; None:
    what it was asked."""
    step_weights: tuple[float, ...] | None = None
    """Of a relabelled demonstration: what each of its steps counts, its relevance to the goal; None: all alike."""


@fact("batch.planned", family="learner", version=6)
class BatchPlanned(Fact, frozen=True, kw_only=True):
    """What the next updates will be computed from, fixed beforehand."""

    batch: int
    """0, 1, 2 … within the run, of whichever model."""
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
    """Episodes this batch uses up without training on them (groups that agree, dropped members)."""
    seed: int
    version: int
    """Policy version the batch starts from."""
    reference_version: int | None
    proximal_version: int | None
    critic_version: int | None
    """The critic that gives each step its advantage; None: each has its episode's."""
    config_digest: str
    model: str = "policy"
    """Which model it trains: exactly one."""


class SampleReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the update did with each of its samples: four float32 arrays in the order of the mini-batch."""

    advantages: bytes
    weights: bytes
    """Share of the loss."""
    ratios: bytes
    """Mean importance ratio over the sample's action tokens."""
    masks: bytes
    """Fraction of action tokens that contributed."""


@fact("update.applied", family="learner")
class UpdateApplied(Fact, frozen=True, kw_only=True):
    """One optimiser step."""

    update: int
    """1, 2, 3 … within the run: optimiser steps on this model so far."""
    model: str
    """`policy`, `critic`, `orm`, `relabeler`."""
    batch: int
    minibatch: int
    before: str
    """Digest of weights and optimiser state before; 64 hexadecimal characters."""
    after: str
    inputs: str
    """Digest of the numbers that went in: ids, behaviour log-probabilities, advantages, weights."""
    metrics: dict[str, float]
    samples: SampleReport
    duration_ms: float
    """Of a batch's first update: with the log-probabilities that all of the batch is compared with."""
    cpu_ms: float
    """CPU time of all threads, of the same."""


@fact("update.skipped", family="learner")
class UpdateSkipped(Fact, frozen=True, kw_only=True):
    """The gradient was not finite; weights and optimiser stay as they were."""

    update: int
    model: str
    batch: int
    minibatch: int
    reason: str
    state: str
    """Digest of weights and optimiser state, unchanged."""


@fact("samples.swept", family="learner", version=2)
class SamplesSwept(Fact, frozen=True, kw_only=True):
    """Episodes that will not be trained on, and why."""

    episodes: tuple[str, ...]
    reason: str
    """`stale`, `undecided`, `empty`, `late`; of whole groups `agreed`, `alone`; where successes are imitated
    `unsuccessful`; of pairs `successful`, `unpaired`; `unachieved`: nothing to learn from instead; `unrelabelled`:
    ended before a fork; `past`: demonstrations that only the cloning at the beginning had a use for."""
    version: int
    as_of: int | None = None
    """It follows from the log up to this position; None, in facts of version 1: up to the event before it."""


@fact("replay.scored", family="learner")
class ReplayScored(Fact, frozen=True, kw_only=True):
    """A forward pass over stored steps of earlier phases, before a phase is trained on: how sure the policy is of them."""

    version: int
    """Of the policy, the newest."""
    positions: bytes
    """uint64: of their step.taken events."""
    perplexities: bytes
    """float32: of the recorded actions."""


@fact("weights.published", family="learner")
class WeightsPublished(Fact, frozen=True, kw_only=True):
    """New weights exist. Invariant 6: nobody samples from them yet."""

    version: int
    model: str
    weights: BlobRef
    update: int


@fact("checkpoint.saved", family="learner", version=2)
class CheckpointSaved(Fact, frozen=True, kw_only=True):
    """Weights and optimiser state, restorable: a faster start, never the truth."""

    update: int
    batch: int
    version: int
    state: str
    """Digest as in `update.applied.after`; of several models: of their digests (`core.rl.combined_state.combined`)."""
    blob: BlobRef
    shards: tuple[BlobRef, ...] = ()
    """Of a learner of several processes: the part that each of them wrote, by rank. `blob` holds the rest, and names them."""

    @property
    def parts(self) -> tuple[BlobRef, ...]:
        """All that it takes to restore it; what the others hang on comes last, and is let go of last."""
        return (*self.shards, self.blob)


@fact("weights.adopted", family="adoption")
class WeightsAdopted(Fact, frozen=True, kw_only=True):
    """An actor samples from these weights from now on."""

    actor: str
    version: int
    load_ms: float
