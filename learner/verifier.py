"""The checks of `verify`, event by event: a fold of the log that computes again whatever the log says was computed.

Invariant 9, no effects in replay: nothing is appended, no blob is written.
"""

from hashlib import sha256
from pathlib import Path
from threading import Event

from core.errors import CorruptEvent, ForeignLog
from core.ids import digest_hex
from events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    EpisodeJudged,
    RunStarted,
    SamplesSwept,
    StepTaken,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from events.catalogue.run import Fingerprint
from events.envelope import Recorded
from learner.buffer import ReplayBuffer
from learner.claims import Claims
from learner.comparison import Difference, Divergence, What, compare_plans, compare_updates
from learner.damage import ChainEnd
from learner.numerics import configure, differences, fingerprint
from learner.planning import plan, sweep
from learner.trainer import MakeTrainer, Trainer
from learner.training import Training
from storage.blobs import BlobStore
from storage.checkpoints import encode_checkpoint

HEAVY = (RunStarted, BatchPlanned, UpdateApplied, UpdateSkipped, WeightsPublished, CheckpointSaved)
"""Facts whose checking computes for long: done in a thread, so that the event loop stays free."""


class Verifier:
    """Follows a log and computes everything in it again."""

    def __init__(
        self,
        blobs: BlobStore,
        *,
        policy: Path,
        code_rev: str,
        claims: Claims,
        stop: Event,
        make_trainer: MakeTrainer = Training,
    ) -> None:
        """`claims`: what the log's plans say about the events before them."""
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
        self._claims = claims
        self._doubts: list[Divergence] = []
        """Steps and verdicts that are not what a plan says they were."""
        self._stop = stop
        self._make_trainer = make_trainer
        self._buffer = ReplayBuffer()
        self._state = self._buffer.initial()
        self._plans: dict[int, tuple[BatchPlanned | None, bytes]] = {}
        """Per position that a plan was made at: the plan that follows, and the rolling digest there."""
        self._training: Trainer | None = None

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
        elif isinstance(fact, StepTaken | EpisodeJudged):
            self._compare_with_claims(recorded, fact)
        if divergence is not None:
            return divergence
        self._state = self._buffer.apply(self._state, recorded)
        divergence = self._check_computed(recorded)
        if recorded.position in self._claims.points:
            again = plan(self._state, self._state.settings)
            self._plans[recorded.position] = again, self._state.digest.value
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
        self._training = self._make_trainer(
            self._policy, fact.base_policy, blobs=self._blobs, settings=settings, stop=self._stop
        )

    def _require(self) -> Trainer:
        if self._training is None:
            raise ForeignLog("the log does not begin with run.started: the base weights are not named")
        return self._training

    def _check_plan(self, recorded: Recorded, fact: BatchPlanned) -> Divergence | None:
        again, digest = self._plans.pop(fact.as_of, (None, b""))
        if digest and digest != fact.log_digest and self._doubts:
            return self._doubts[0]
        difference = compare_plans(fact, again)
        return None if difference is None else self._divergence(recorded, difference)

    def _compare_with_claims(self, recorded: Recorded, fact: StepTaken | EpisodeJudged) -> None:
        """Remember what is not as a plan says. Step or plan was altered: the log's digest in the plan tells which."""
        if isinstance(fact, StepTaken):
            what: What = "inputs"
            claimed, found = self._claims.steps.get(recorded.position), recorded.digest[:8]
            same = claimed in (None, found)
            texts = f"a step whose bytes have sha256 {(claimed or b'').hex()}…", f"sha256 {found.hex()}…"
        else:
            what = "advantages"
            episode = self._state.episodes.get(fact.episode)
            counts = episode is not None and episode.outcome is None and fact.judge.name == self._judge
            claim = self._claims.rewards.get(fact.episode)
            same = not counts or claim in (None, fact.judgment.reward)
            texts = f"reward {claim!r} of {fact.episode}", f"reward {fact.judgment.reward!r}"
        if not same:
            self._doubts.append(
                Divergence(
                    position=recorded.position,
                    event=recorded.envelope.type,
                    what=what,
                    expected=texts[0],
                    found=texts[1],
                    cause="The stored event was altered after a batch had been planned from it.",
                )
            )

    @property
    def _judge(self) -> str:
        return self._state.settings.judge.judges[0]

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
