"""The checks of `verify`, event by event: a fold of the log that computes again whatever the log says was computed.

Invariant 9, no effects in replay: nothing is appended, no blob is written.
"""

from hashlib import sha256
from pathlib import Path
from threading import Event

import msgspec

from core.arrays import unpack_positions
from core.errors import CorruptEvent, ForeignLog
from core.ids import digest_hex
from events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    RunStarted,
    SamplesSwept,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from events.catalogue.run import Fingerprint
from events.envelope import Recorded
from learner.buffer import ReplayBuffer
from learner.comparison import Difference, What, compare_plans, compare_updates
from learner.numerics import configure, differences, fingerprint
from learner.planning import plan, sweep
from learner.training import Training
from storage.blobs import BlobStore
from storage.checkpoints import encode_checkpoint

HEAVY = (RunStarted, BatchPlanned, UpdateApplied, UpdateSkipped, WeightsPublished, CheckpointSaved)
"""Facts whose checking computes for long: done in a thread, so that the event loop stays free."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the log and its recomputation part."""

    position: int
    event: str
    """Type of the event there, such as `update.applied`."""
    what: What
    expected: str
    """As recorded."""
    found: str
    """As computed again."""
    cause: str
    """The likely cause, in words."""


class ChainEnd(msgspec.Struct, frozen=True):
    """The last event of one producer incarnation."""

    seq: int
    digest: bytes
    position: int
    type: str


class Verifier:
    """Follows a log and computes everything in it again."""

    def __init__(
        self, blobs: BlobStore, *, policy: Path, code_rev: str, points: set[int], stop: Event
    ) -> None:
        """`points`: positions to make plans at."""
        self.position = 0
        self.updates = 0
        self.weights = 0
        self.checkpoints = 0
        self.chains: dict[str, ChainEnd] = {}
        self.started: RunStarted | None = None
        self.now: Fingerprint | None = None
        self._blobs = blobs
        self._policy = policy
        self._code_rev = code_rev
        self._points = points
        self._stop = stop
        self._buffer = ReplayBuffer()
        self._state = self._buffer.initial()
        self._plans: dict[int, BatchPlanned | None] = {}
        self._training: Training | None = None

    @property
    def then(self) -> Fingerprint | None:
        """What the run was last started on."""
        return self._state.fingerprint

    def take(self, recorded: Recorded) -> Divergence | None:
        """Check one event and fold it. Blocking; heavy for `HEAVY` facts.

        Raises:
            CorruptEvent: it does not follow from what stands before it.

        """
        fact, divergence = recorded.fact, None
        if isinstance(fact, BatchPlanned):
            divergence = self._check_plan(recorded, fact)
        elif isinstance(fact, SamplesSwept):
            divergence = self._check_sweep(recorded, fact)
        if divergence is not None:
            return divergence
        self._state = self._buffer.apply(self._state, recorded)
        divergence = self._check_computed(recorded)
        if recorded.position in self._points:
            self._plans[recorded.position] = plan(self._state, self._state.settings)
        envelope = recorded.envelope
        self.chains[envelope.incarnation] = ChainEnd(
            envelope.producer_seq, recorded.digest, recorded.position, envelope.type
        )
        self.position = recorded.position
        return divergence

    def _check_computed(self, recorded: Recorded) -> Divergence | None:
        match recorded.fact:
            case RunStarted() as fact:
                self._start(fact)
            case BatchPlanned() as fact:
                assert self._state.batch is not None
                self._require().begin(fact, self._state.batch)
            case UpdateApplied() | UpdateSkipped() as fact:
                return self._check_update(recorded, fact)
            case WeightsPublished() as fact:
                return self._check_weights(recorded, fact)
            case CheckpointSaved() as fact:
                return self._check_checkpoint(recorded, fact)
        return None

    def _start(self, fact: RunStarted) -> None:
        settings = self._state.settings.learner
        configure(settings.threads)
        self.started = fact
        self.now = fingerprint(settings.threads)
        self._training = Training(
            self._policy, fact.base_policy, blobs=self._blobs, settings=settings, stop=self._stop
        )

    def _require(self) -> Training:
        if self._training is None:
            raise ForeignLog("the log does not begin with run.started: the base weights are not named")
        return self._training

    def _check_plan(self, recorded: Recorded, fact: BatchPlanned) -> Divergence | None:
        again = self._plans.pop(fact.as_of, None)
        if again is not None and again.log_digest != fact.log_digest:
            altered = self._altered_input(fact)
            if altered is not None:
                return altered
        difference = compare_plans(fact, again)
        return None if difference is None else self._divergence(recorded, difference)

    def _altered_input(self, fact: BatchPlanned) -> Divergence | None:
        """The log before the plan is not the one the plan was made from: find the step or the verdict that changed."""
        episodes = [
            self._state.episodes[p.episode] for p in fact.episodes if p.episode in self._state.episodes
        ]
        digests = {sample.position: sample.digest for episode in episodes for sample in episode.samples}
        for index, position in enumerate(unpack_positions(fact.positions).tolist()):
            recorded = fact.sample_digests[8 * index : 8 * index + 8]
            if position in digests and digests[position] != recorded:
                return Divergence(
                    position=position,
                    event="step.taken",
                    what="inputs",
                    expected=f"a step whose bytes have sha256 {recorded.hex()}…, as batch {fact.batch} recorded",
                    found=f"sha256 {digests[position].hex()}…",
                    cause="The stored step was altered after the batch had been planned from it.",
                )
        for planned in fact.episodes:
            episode = self._state.episodes.get(planned.episode)
            if episode is not None and episode.reward != planned.reward:
                return Divergence(
                    position=episode.judged,
                    event="episode.judged",
                    what="advantages",
                    expected=f"reward {planned.reward!r} of {planned.episode}, as batch {fact.batch} recorded",
                    found=f"reward {episode.reward!r}",
                    cause="The stored verdict was altered after the batch had been planned from it.",
                )
        return None

    def _check_sweep(self, recorded: Recorded, fact: SamplesSwept) -> Divergence | None:
        due = {s.reason: set(s.episodes) for s in sweep(self._state, self._state.settings)}.get(
            fact.reason, set()
        )
        wrong = sorted(set(fact.episodes) - due)
        if not wrong and fact.version == self._state.version:
            return None
        difference = Difference(
            what="plan",
            expected=f"{fact.reason} at version {fact.version}: {', '.join(fact.episodes)}",
            found=f"not so at version {self._state.version}: {', '.join(wrong)}",
        )
        return self._divergence(recorded, difference)

    def _check_update(self, recorded: Recorded, fact: UpdateApplied | UpdateSkipped) -> Divergence | None:
        planned = self._state.plan
        if (
            planned is None
            or planned.batch != fact.batch
            or not 0 <= fact.minibatch < len(planned.minibatches) // 4
        ):
            raise CorruptEvent(
                f"position {recorded.position} reports mini-batch {fact.minibatch} of batch {fact.batch}, which is not planned"
            )
        difference = compare_updates(fact, self._require().step(fact.minibatch))
        if difference is not None:
            return self._divergence(recorded, difference)
        self.updates += 1
        return None

    def _check_weights(self, recorded: Recorded, fact: WeightsPublished) -> Divergence | None:
        if fact.version == 0 and self.started is not None:
            found = self.started.base_policy.sha256
        else:
            found = digest_hex(self._require().weights())
        if found != fact.weights.sha256:
            difference = Difference(
                what="weights", expected=f"sha256 {fact.weights.sha256}", found=f"sha256 {found}"
            )
            return self._divergence(recorded, difference)
        self.weights += 1
        return None

    def _check_checkpoint(self, recorded: Recorded, fact: CheckpointSaved) -> Divergence | None:
        tensors, counters = self._require().snapshot(batch=fact.batch, version=fact.version)
        blob = sha256(encode_checkpoint(tensors, counters)).hexdigest()
        found = f"update {counters.update}, state {counters.state}, sha256 {blob}"
        expected = f"update {fact.update}, state {fact.state}, sha256 {fact.blob.sha256}"
        if found != expected:
            return self._divergence(recorded, Difference(what="weights", expected=expected, found=found))
        self.checkpoints += 1
        return None

    def _divergence(self, recorded: Recorded, difference: Difference) -> Divergence:
        return Divergence(
            position=recorded.position,
            event=recorded.envelope.type,
            what=difference.what,
            expected=difference.expected,
            found=difference.found,
            cause=self._cause(recorded, difference.what),
        )

    def _cause(self, recorded: Recorded, what: What) -> str:
        changed = differences(self.then, self.now) if self.then is not None and self.now is not None else []
        revision = recorded.envelope.code_rev
        if what in ("loss", "weights") and changed:
            return f"Recorded with other libraries or on another processor: {'; '.join(changed)}."
        if what == "chain":
            return "Events before the plan were altered after it was made."
        if self._code_rev and revision != self._code_rev:
            return (
                f"Recorded by code {revision}, verified by code {self._code_rev}; else the event was altered."
            )
        return "Same code, versions, processor and threads: the event, or one it follows from, was altered afterwards."
