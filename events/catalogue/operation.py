"""Facts about running the system: waits, controls, blobs, the log itself."""

from typing import Any

from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.registry import fact


@fact("wait.exceeded", family="notice")
class WaitExceeded(Fact, frozen=True, kw_only=True):
    """Invariant 10: a wait hit its bound."""

    setting: str
    """Name of the bound in the settings."""
    limit_s: float
    waited_for: str


@fact("policy_server.troubled", family="notice")
class PolicyServerTroubled(Fact, frozen=True, kw_only=True):
    """A server that the policy is sampled on gave no answer, or one that was rejected. Once per stretch of trouble."""

    server: str
    """Its address."""
    trouble: str
    """`unreachable`, `refused`, `unusable`, `wrong_version` (it sampled from other weights than it is expected to have),
    `behind` (others have new weights, and it has not), `no_weights` (new weights could not be laid out for it, as on a full
    disk), `ended` (its process is gone)."""
    detail: str


@fact("mismatch.exceeded", family="notice")
class MismatchExceeded(Fact, frozen=True, kw_only=True):
    """Sampler and learner disagree about what one and the same policy says, by more than `learner.mismatch_alarm`."""

    update: int
    """Of the policy: whose samples say so."""
    batch: int
    version: int
    """Of the policy that both computed."""
    mismatch_kl: float
    """As in the metrics of `update.applied`: mean over tokens, by the k3 estimate."""
    mismatch_max: float
    """Largest difference of a token's two log-probabilities."""
    limit: float


@fact("injection.seen", family="notice")
class InjectionSeen(Fact, frozen=True, kw_only=True):
    """Page text that tries to give instructions."""

    episode: str
    index: int
    excerpt: str


@fact("event.dead_lettered", family="notice")
class EventDeadLettered(Fact, frozen=True, kw_only=True):
    """A consumer set an event aside after its tries were used up."""

    consumer: str
    position: int
    tries: int
    error: str


@fact("queue.repaired", family="notice")
class QueueRepaired(Fact, frozen=True, kw_only=True):
    """A work queue's consumer in the broker was changed or had vanished, and was made anew; all its events come again."""

    queue: str
    """`episodes`, `verdicts` or `relabels`."""
    wrong: str
    """What was not as it should be."""


@fact("blob.released", family="storage", version=2)
class BlobReleased(Fact, frozen=True, kw_only=True):
    """A blob was let go of by a retention rule; audit accepts its absence."""

    blob: BlobRef
    reason: str
    page: bool = False
    """Whether it is a snapshot of a page: an archive that has copied it keeps it."""


@fact("snapshot.saved", family="snapshot")
class SnapshotSaved(Fact, frozen=True, kw_only=True):
    """The state of a fold stands in a blob: a faster start, never the truth."""

    projection: str
    """Whose state: `learner`, `curriculum`, `pages`. The newest one is the last event under the projection's own subject."""
    position: int
    """The log is folded up to here."""
    schema: str
    """Digest of the state's shape and of the code that folds it: another code's snapshot is passed over."""
    position_digest: bytes
    """sha256 of the stored bytes at `position`."""
    log_digest: bytes
    """Rolling digest up to `position`, where the projection has one; else empty."""
    previous: int
    """Position of the `snapshot.saved` before this one of the same projection; 0: there is none."""
    blob: BlobRef


@fact("segment.archived", family="storage")
class SegmentArchived(Fact, frozen=True, kw_only=True):
    """A verified prefix of the log stands in an archive."""

    first: int
    last: int
    sha256: str
    location: str


@fact("log.repaired", family="storage")
class LogRepaired(Fact, frozen=True, kw_only=True):
    """The stream was rebuilt from an archive."""

    first: int
    last: int
    reason: str


@fact("log.sealed", family="storage")
class LogSealed(Fact, frozen=True, kw_only=True):
    """Nothing more will be appended."""

    events: int


@fact("control.requested", family="control")
class ControlRequested(Fact, frozen=True, kw_only=True):
    """Somebody asks the run to do something."""

    command: str
    arguments: dict[str, Any]
    author: str
    reason: str


@fact("control.applied", family="control")
class ControlApplied(Fact, frozen=True, kw_only=True):
    """A role did it."""

    command: str
    role: str
