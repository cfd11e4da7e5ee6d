"""Facts about operating a run: waits, controls, blobs, snapshots and the log itself."""

from typing import Any

from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.registry import Role, fact
from hindcast.events.subjects import CONTROL, NOTICE, SNAPSHOT, STORAGE

WORKERS: tuple[Role, ...] = ("curriculum", "actor", "judge", "relabeler", "learner", "archiver")
"""Roles that wait for others and consume events."""


@fact("wait.exceeded", subject=NOTICE, roles=WORKERS)
class WaitExceeded(Fact, frozen=True, kw_only=True):
    """A wait exceeded its bound (invariant 10)."""

    setting: str
    """Name of the bound in the settings."""
    limit_s: float
    waited_for: str


@fact("policy_server.troubled", subject=NOTICE, roles=("actor", "policy_server"))
class PolicyServerTroubled(Fact, frozen=True, kw_only=True):
    """A policy server gave no answer or an unusable one. Recorded once per period of trouble."""

    server: str
    """Address of the server."""
    trouble: str
    """`unreachable`, `refused`, `unusable`, `wrong_version` (it sampled from unexpected weights), `behind` (others have new
    weights, and it has not), `no_weights` (its new weights could not be written, as on a full disk), `ended` (its process is
    gone)."""
    detail: str


@fact(
    "mismatch.exceeded",
    subject=NOTICE,
    roles="learner",
    refs={"update": "update", "batch": "batch", "version": "policy"},
)
class MismatchExceeded(Fact, frozen=True, kw_only=True):
    """The log-probabilities of sampler and learner under equal weights differ by more than `learner.mismatch_alarm`."""

    update: int
    """Policy update whose samples show it."""
    batch: int
    version: int
    """Policy version that both computed."""
    mismatch_kl: float
    """Mean KL over tokens by the k3 estimate, as in the metrics of `update.applied`."""
    mismatch_max: float
    """Largest difference of a token's two log-probabilities."""
    limit: float
    """`learner.mismatch_alarm`."""


@fact("injection.seen", subject=NOTICE, roles="actor", refs={"episode": "episode"})
class InjectionSeen(Fact, frozen=True, kw_only=True):
    """A page contained text addressed to the agent (prompt injection)."""

    episode: str
    index: int
    excerpt: str


@fact("event.dead_lettered", subject=NOTICE, roles=WORKERS, refs={"position": "position"})
class EventDeadLettered(Fact, frozen=True, kw_only=True):
    """A consumer set an event aside after its last attempt (dead letter)."""

    consumer: str
    position: int
    tries: int
    error: str


@fact("queue.repaired", subject=NOTICE, roles="admin")
class QueueRepaired(Fact, frozen=True, kw_only=True):
    """A work queue's consumer in the broker was wrong or missing and was made anew; it delivers all its events again."""

    queue: str
    """`episodes`, `verdicts` or `relabels`."""
    wrong: str
    """What was wrong with it."""


@fact("blob.released", subject=STORAGE, roles=("learner", "archiver"), version=2)
class BlobReleased(Fact, frozen=True, kw_only=True):
    """A retention rule released a blob; audit accepts its absence."""

    blob: BlobRef
    reason: str
    page: bool = False
    """Whether it is a page snapshot, which an archive that has copied it keeps."""


@fact(
    "snapshot.saved",
    subject=SNAPSHOT,
    roles=("curriculum", "learner", "archiver"),
    refs={"position": "position"},
)
class SnapshotSaved(Fact, frozen=True, kw_only=True):
    """A projection's state was saved as a blob: a faster start, never the truth."""

    projection: str
    """Projection: `learner`, `curriculum`, `pages`. Its newest snapshot is the last event under its own subject."""
    position: int
    """Position of the last folded event."""
    schema: str
    """Digest of the state's shape and of the folding code: a snapshot of other code is ignored."""
    position_digest: bytes
    """sha256 of the stored bytes at `position`."""
    log_digest: bytes
    """Rolling digest up to `position` if the projection has one, else empty."""
    previous: int
    """Position of this projection's previous `snapshot.saved`; 0: there is none."""
    blob: BlobRef


@fact("segment.archived", subject=STORAGE, roles="archiver", refs={"first": "position", "last": "position"})
class SegmentArchived(Fact, frozen=True, kw_only=True):
    """An archive holds this part of the log, verified."""

    first: int
    last: int
    sha256: str
    location: str


@fact("log.repaired", subject=STORAGE, roles="repairer", refs={"first": "position", "last": "position"})
class LogRepaired(Fact, frozen=True, kw_only=True):
    """The stream was rebuilt from an archive."""

    first: int
    last: int
    reason: str


@fact("log.sealed", subject=STORAGE, roles=("archiver", "repairer"))
class LogSealed(Fact, frozen=True, kw_only=True):
    """The log is complete: nothing more will be appended."""

    events: int


PAUSE, RESUME = "pause", "resume"
"""Commands: begin no episode until the same author, or another one in that author's name (`of`), resumes."""
DRAIN = "drain"
"""Command: cancel what nobody has started, request nothing until the run is resumed."""
EVALUATE = "evaluate"
"""Argument of a drain whose run is about to end: train no further, and evaluate the newest policy before it is applied."""


@fact("control.requested", subject=CONTROL, roles=("curriculum", "control"))
class ControlRequested(Fact, frozen=True, kw_only=True):
    """A person or a role requested an action of the run."""

    command: str
    arguments: dict[str, Any]
    author: str
    reason: str


@fact("control.applied", subject=CONTROL, roles="curriculum")
class ControlApplied(Fact, frozen=True, kw_only=True):
    """A role carried out a requested command."""

    command: str
    role: str
