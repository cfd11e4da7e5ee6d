"""The checks of `verify` that need no model: a fold of the log that plans every batch again.

Checks that each plan and sweep follows from the events before it, and that steps and verdicts are those that a plan names.
Keeps the ends of all hash chains, for `learner.verify.damage` if reading fails.
Invariant 9, no effects in replay: nothing is appended, no blob is written.
"""

import msgspec

from hindcast.core.domain.arrays import unpack_positions
from hindcast.core.plugins import require_plugins
from hindcast.core.rl.algorithm import ALGORITHMS
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
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.envelope import Recorded
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.buffer.phases import unscored
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.verify.comparison import PLAN_STAGES, Difference, What, plan_differences
from hindcast.learner.verify.damage import ChainEnd
from hindcast.learner.verify.diagnosis import ComparedEnvironments, Divergence, diagnose, witness_of
from hindcast.learner.verify.plan_claims import Claims


class Verifier:
    """Follows a log from its first event."""

    def __init__(self, *, claims: Claims, code_rev: str) -> None:
        """`claims`: what the log's plans assert about the events before them."""
        self.position = 0
        self.chains: dict[str, ChainEnd] = {}
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
    def then(self) -> Fingerprint | None:
        """Fingerprint of the run's latest start."""
        return self._state.fingerprint

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
        if isinstance(fact, RunStarted | RunForked):
            require_plugins(self._state.plugins, ALGORITHMS)
        if recorded.position in self._claims.points:
            again = plan(self._state, self._state.settings)
            self._plans[recorded.position] = again, self._state.digest.value
        if recorded.position in self._claims.swept_at:
            self._sweeps[recorded.position] = self._due()
        envelope = recorded.envelope
        self.chains[envelope.incarnation] = ChainEnd(
            envelope.producer_seq, recorded.digest, recorded.position, envelope.type
        )
        self.position = recorded.position
        return None

    def _check_plan(self, recorded: Recorded, fact: BatchPlanned) -> Divergence | None:
        again, digest = self._plans.pop(fact.as_of, (None, b""))
        if digest and digest != fact.log_digest and self._doubts:
            return self._doubts[0]
        return diagnose(recorded, plan_differences(fact, again), stages=PLAN_STAGES, witness=self._witness())

    def _compare_with_claims(
        self, recorded: Recorded, fact: StepTaken | EpisodeJudged | EpisodeRelabeled
    ) -> None:
        """Record an event that contradicts a plan. Step or plan was altered: the log's digest in the plan decides which."""
        claimed, found = self._claims.steps.get(recorded.position), recorded.digest[:8]
        if not isinstance(fact, EpisodeJudged) or claimed not in (None, found):
            what: What = "inputs"
            same = claimed in (None, found)
            texts = f"an event whose bytes have sha256 {(claimed or b'').hex()}…", f"sha256 {found.hex()}…"
        else:
            what = "advantages"
            episode = self._state.episodes.get(fact.episode)
            counts = episode is not None and episode.outcome is None and fact.judge.name == self._judge
            claim = self._claims.rewards.get(fact.episode)
            same = not counts or claim in (None, fact.judgment.reward)
            texts = f"reward {claim!r} of {fact.episode}", f"reward {fact.judgment.reward!r}"
        if same:
            return
        difference = Difference(what=what, expected=texts[0], found=texts[1])
        doubt = diagnose(recorded, [difference], stages=(), witness=self._witness())
        assert doubt is not None
        cause = "The stored event was altered after a batch had been planned from it."
        self._doubts.append(msgspec.structs.replace(doubt, cause=cause))

    @property
    def _judge(self) -> str:
        return self._state.settings.judge.judges[0]

    def _due(self) -> dict[str, set[str]]:
        """Episodes to sweep now, by reason."""
        return {due.reason: set(due.episodes) for due in sweep(self._state, self._state.settings)}

    def _check_sweep(self, recorded: Recorded, fact: SamplesSwept) -> Divergence | None:
        due = self._due() if fact.as_of is None else self._sweeps.pop(fact.as_of, {})
        wrong = sorted(set(fact.episodes) - due.get(fact.reason, set()))
        if not wrong and fact.version == self._state.version:
            return None
        difference = Difference(
            what="plan",
            expected=f"{fact.reason} at version {fact.version}: {', '.join(fact.episodes)}",
            found=f"not so at version {self._state.version}: {', '.join(wrong)}",
        )
        return diagnose(recorded, [difference], stages=(), witness=self._witness())

    def _check_scored(self, recorded: Recorded, fact: ReplayScored) -> Divergence | None:
        """Check that the scored steps were due; `Recomputation` checks the numbers."""
        due = [sample.position for sample in unscored(self._state, self._state.settings.learner)]
        found = unpack_positions(fact.positions).tolist()
        if found == due and fact.version == self._state.version:
            return None
        difference = Difference(
            what="plan",
            expected=f"{len(found)} steps scored under version {fact.version}",
            found=f"{len(due)} due under version {self._state.version}, or others",
        )
        return diagnose(recorded, [difference], stages=(), witness=self._witness())

    def _witness(self) -> ComparedEnvironments:
        return witness_of(self.then, code_rev=self._code_rev, plugins=self._state.plugins)
