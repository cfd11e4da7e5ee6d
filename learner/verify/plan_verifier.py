"""The checks of `verify` that need no model: a fold of the log that plans every batch again.

Checks that each plan and sweep follows from the events before it, and that steps and verdicts are those that a plan names.
Keeps the ends of all hash chains, with which `find_damage` locates the damaged event of a log that cannot be read further.
Invariant 9, no effects in replay: nothing is appended, no blob is written.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from hindcast.core.domain.arrays import unpack_positions
from hindcast.core.errors import CorruptEvent, HindcastError
from hindcast.core.plugins import require_plugins
from hindcast.core.rl.algorithm import ALGORITHMS
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeJudged,
    EpisodeRelabeled,
    ReplayScored,
    RunForked,
    RunStarted,
    SamplesSwept,
    StepTaken,
)
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import Envelope, Recorded, Stored
from hindcast.events.log.port import EventLog
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.planners.phases import unscored
from hindcast.learner.verify.comparison import PLAN_STAGES, Difference, What, plan_differences
from hindcast.learner.verify.diagnosis import ComparedEnvironments, Divergence, diagnose, witness_of
from hindcast.learner.verify.machines import MachineHistory
from hindcast.learner.verify.survey import Claims

LOOK_AHEAD_EVENTS = 500
"""Events to search for the successor of an event in its hash chain."""


class ChainEnd(msgspec.Struct, frozen=True):
    """The last event of one producer incarnation so far."""

    seq: int
    digest: bytes
    position: int
    type: str


async def find_damage(
    log: EventLog, *, after: int, chains: Mapping[str, ChainEnd], error: HindcastError
) -> Divergence | None:
    """Diagnose the event after position `after`, at which reading failed with `error`.

    If an event does not name the bytes of its predecessor, one of the two was altered: the predecessor, if the event's own
    successor still confirms the event. None: the event is intact, but belongs to another run or a newer Hindcast.
    """
    events = await log.read(after=after, limit=LOOK_AHEAD_EVENTS)
    if not events or events[0].position != after + 1:
        return _divergence(after + 1, "", error, altered=False)
    event = events[0]
    try:
        envelope = decode_envelope(event)
    except HindcastError:
        family = event.subject.split(".")[2]
        return _divergence(event.position, "step.taken" if family == "step" else family, error, altered=True)
    last = chains.get(envelope.incarnation)
    if _is_disowned(event, envelope, events[1:]):
        return _divergence(event.position, envelope.type, error, altered=True)
    seq, digest = (last.seq, last.digest) if last is not None else (-1, b"")
    if last is not None and envelope.producer_seq == seq + 1 and envelope.prev_hash != digest:
        return _divergence(last.position, last.type, error, altered=True)
    if not isinstance(error, CorruptEvent) and (envelope.producer_seq, envelope.prev_hash) == (
        seq + 1,
        digest,
    ):
        return None
    return _divergence(event.position, envelope.type, error, altered=False)


def _is_disowned(event: Stored, envelope: Envelope, following: Sequence[Stored]) -> bool:
    """Whether the producer's next event names other bytes; False if none is near."""
    for candidate in following:
        try:
            successor = decode_envelope(candidate)
        except HindcastError:
            continue
        if (successor.incarnation, successor.producer_seq) == (
            envelope.incarnation,
            envelope.producer_seq + 1,
        ):
            return successor.prev_hash != sha256(event.data).digest()
    return False


def _divergence(position: int, event: str, error: HindcastError, *, altered: bool) -> Divergence:
    return Divergence(
        position=position,
        event=event,
        what="inputs" if altered and event == "step.taken" else "chain",
        expected="the bytes that were appended, in their order",
        found=str(error),
        cause="Stored events were altered, lost or reordered after they were written.",
    )


class Verifier:
    """Follows a log from its first event."""

    def __init__(self, *, claims: Claims, code_rev: str) -> None:
        """`claims`: what the log's plans assert about the events before them."""
        self.position = 0
        self.chains: dict[str, ChainEnd] = {}
        self.machines = MachineHistory()
        self._code_rev = code_rev
        self._claims = claims
        self._doubts: list[Divergence] = []
        """Steps and verdicts that differ from a plan's claims."""
        self._buffer = ReplayBuffer()
        self._state = self._buffer.initial()
        self._plans: dict[int, tuple[BatchPlanned | None, bytes]] = {}
        """By position that a plan was made at: the plan that follows from the log, and the rolling digest there."""
        self._sweeps: dict[int, dict[str, set[str]]] = {}
        """By position that a sweep was decided at: episodes to sweep there, by reason."""

    @property
    def started(self) -> bool:
        """Whether run.started was read."""
        return self._state.started is not None

    @property
    def settings(self) -> LearnerSettings:
        """The learner's settings in force."""
        return self._state.settings.learner

    def take(self, recorded: Recorded) -> Divergence | None:
        """Check one event and fold it; returns a divergence, if any.

        Raises:
            CorruptEvent: it does not follow from what stands before it.
            PluginError: an algorithm that the run was recorded with is missing, or has another state version.
        """
        fact, divergence = recorded.fact, None
        if isinstance(fact, BatchPlanned):
            divergence = self._check_plan(recorded, fact)
        elif isinstance(fact, SamplesSwept):
            divergence = self._check_sweep(recorded, fact)
        elif isinstance(fact, ReplayScored):
            divergence = self._check_scored(recorded, fact)
        elif isinstance(fact, StepTaken | EpisodeJudged | EpisodeRelabeled):
            self._compare_with_claims(recorded, fact)
        if divergence is not None:
            return divergence
        self._state = self._buffer.apply(self._state, recorded)
        self.machines.take(recorded.position, fact)
        if isinstance(fact, RunStarted | RunForked):
            require_plugins(self._state.plugins, ALGORITHMS)
        if recorded.position in self._claims.points:
            recomputed = plan(self._state, self._state.settings)
            self._plans[recorded.position] = recomputed, self._state.digest.value
        if recorded.position in self._claims.swept_at:
            self._sweeps[recorded.position] = self._due()
        envelope = recorded.envelope
        self.chains[envelope.incarnation] = ChainEnd(
            envelope.producer_seq, recorded.digest, recorded.position, envelope.type
        )
        self.position = recorded.position
        return None

    def _check_plan(self, recorded: Recorded, fact: BatchPlanned) -> Divergence | None:
        recomputed, digest = self._plans.pop(fact.as_of, (None, b""))
        if digest and digest != fact.log_digest and self._doubts:
            return self._doubts[0]
        return diagnose(
            recorded, plan_differences(fact, recomputed), stages=PLAN_STAGES, witness=self.witness()
        )

    def _compare_with_claims(
        self, recorded: Recorded, fact: StepTaken | EpisodeJudged | EpisodeRelabeled
    ) -> None:
        """Record an event that contradicts a plan. Step or plan was altered: the log's digest in the plan decides which."""
        claimed, digest = self._claims.steps.get(recorded.position), recorded.digest[:8]
        if not isinstance(fact, EpisodeJudged) or claimed not in (None, digest):
            what: What = "inputs"
            agrees = claimed in (None, digest)
            texts = f"an event whose bytes have sha256 {(claimed or b'').hex()}…", f"sha256 {digest.hex()}…"
        else:
            what = "advantages"
            episode = self._state.episodes.get(fact.episode)
            counts = episode is not None and episode.outcome is None and fact.judge.name == self._judge
            claim = self._claims.rewards.get(fact.episode)
            agrees = not counts or claim in (None, fact.judgment.reward)
            texts = f"reward {claim!r} of {fact.episode}", f"reward {fact.judgment.reward!r}"
        if agrees:
            return
        doubt = self._diverged(recorded, what, *texts)
        cause = "The stored event was altered after a batch had been planned from it."
        self._doubts.append(msgspec.structs.replace(doubt, cause=cause))

    @property
    def _judge(self) -> str:
        return self._state.settings.judge.judges[0]

    def _due(self) -> dict[str, set[str]]:
        """Episodes to sweep now, by reason."""
        return {event.reason: set(event.episodes) for event in sweep(self._state, self._state.settings)}

    def _check_sweep(self, recorded: Recorded, fact: SamplesSwept) -> Divergence | None:
        expected = self._due() if fact.as_of is None else self._sweeps.pop(fact.as_of, {})
        unexpected = sorted(set(fact.episodes) - expected.get(fact.reason, set()))
        if not unexpected and fact.version == self._state.version:
            return None
        return self._diverged(
            recorded,
            "plan",
            f"{fact.reason} at version {fact.version}: {', '.join(fact.episodes)}",
            f"not so at version {self._state.version}: {', '.join(unexpected)}",
        )

    def _check_scored(self, recorded: Recorded, fact: ReplayScored) -> Divergence | None:
        """Check that the scored steps were due; `Recomputation` checks the numbers."""
        expected = [sample.position for sample in unscored(self._state, self._state.settings.learner)]
        scored = unpack_positions(fact.positions).tolist()
        if scored == expected and fact.version == self._state.version:
            return None
        return self._diverged(
            recorded,
            "plan",
            f"{len(scored)} steps scored under version {fact.version}",
            f"{len(expected)} due under version {self._state.version}, or others",
        )

    def _diverged(self, recorded: Recorded, what: What, expected: str, found: str) -> Divergence:
        difference = Difference(what=what, expected=expected, found=found)
        divergence = diagnose(recorded, [difference], stages=(), witness=self.witness())
        assert divergence is not None
        return divergence

    def witness(self) -> ComparedEnvironments:
        """What is known about the run's latest start and about now."""
        return witness_of(
            self._state.fingerprint,
            settings=self.settings,
            code_rev=self._code_rev,
            plugins=self._state.plugins,
        )
