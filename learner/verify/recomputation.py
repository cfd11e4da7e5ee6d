"""Recomputes one model along a log, and compares the results with the recorded ones."""

from pathlib import Path
from threading import Event

import numpy as np

from hindcast.core.domain.arrays import unpack_floats, unpack_positions
from hindcast.core.errors import BlobMissing, CheckpointCorrupt, CorruptEvent, HindcastError
from hindcast.core.ids import digest_hex
from hindcast.core.rl.combined_state import CRITIC, POLICY, combined
from hindcast.core.scratch import scratch_folder
from hindcast.core.settings.computing import Device, WantedPrecision
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    ReplayScored,
    RunStarted,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.numerics import device_then, precision_then
from hindcast.learner.planners.phases import earlier_samples
from hindcast.learner.training import MakeTrainer, Trainer, Training
from hindcast.learner.verify.comparison import (
    POLICY_DISTANCE,
    UPDATE_STAGES,
    Deviation,
    Difference,
    What,
    deviation,
    incomparable,
    update_differences,
    weights_distance,
)
from hindcast.learner.verify.diagnosis import Divergence, diagnose, witness_of
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import DigestOnlySink, encode_checkpoint, load_checkpoint

HEAVY = (
    RunStarted,
    BatchPlanned,
    ReplayScored,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
    CheckpointSaved,
)
"""Events that require a computation. The others only have to be folded."""


class Recomputation:
    """Follows a log from the position that it enters at. All methods block; call them from one thread."""

    def __init__(
        self,
        blobs: BlobStore,
        *,
        policy: Path,
        code_rev: str,
        tolerance: float | None,
        stop: Event,
        make_trainer: MakeTrainer = Training,
    ) -> None:
        """`tolerance`: accepted deviation of numbers (see `learner.verify.comparison`); None: every bit must agree."""
        self.updates = 0
        self.digests = 0
        self.weights = 0
        self.checkpoints = 0
        self._blobs = blobs
        self._policy = policy
        self._code_rev = code_rev
        self._tolerance = tolerance
        self._stop = stop
        self._make_trainer = make_trainer
        self.deviations: list[Deviation] = []
        """With a tolerance: deviation of every update."""
        self.beyond: Divergence | None = None
        """The first place where numbers deviate by more than the tolerance."""
        self._reached: dict[str, str] = {}
        """Recorded state digest after the last update of each model; absent if not known, empty if none was recorded."""
        self._training: Trainer | None = None
        self._begun = False
        """Whether the trainer was given a checkpoint or a batch."""
        self._computing: tuple[Device, WantedPrecision] = "cpu", "float32"
        """`learner.device` and `learner.precision` of the trainer."""
        self._machines: list[Fingerprint] = []
        """That recorded the updates since the stretch began."""

    def count_anew(self) -> None:
        """Reset the counts for the next stretch."""
        self.updates = self.digests = self.weights = self.checkpoints = 0
        self.deviations, self.beyond = [], None

    def enter(self, recorded: Recorded, state: BufferState) -> Divergence | None:
        """Start from the checkpoint of this event, after checking that it holds what the event says.

        Raises:
            BlobMissing: it was released since it was chosen.
        """
        fact = recorded.fact
        assert isinstance(fact, CheckpointSaved)
        if not all(map(self._blobs.has, fact.parts)):
            raise BlobMissing(
                f"the checkpoint of update {fact.update} (position {recorded.position}) was released during the "
                "verification. Run the same command again: it begins at another checkpoint."
            )
        training = self._start(state)
        self._begun, self._machines = True, []
        try:
            checkpoint = load_checkpoint(self._blobs, fact.blob)
            training.restore(checkpoint)
        except CheckpointCorrupt as error:
            return self._compare(recorded, state, "weights", "a checkpoint as recorded", str(error))
        counters = checkpoint.counters
        self._reached = {} if counters.beside else {POLICY: fact.state}
        expected = _counters(fact.update, fact.batch, fact.version, fact.state)
        found = _counters(counters.update, counters.batch, counters.version, counters.state)
        return self._compare(recorded, state, "weights", expected, found)

    def take(self, recorded: Recorded, state: BufferState) -> Divergence | None:
        """Compute what this event reports, and compare; `state` is the fold up to and including it.

        Raises:
            CorruptEvent: it reports something that was not planned.
        """
        match recorded.fact:
            case RunStarted():
                self._start(state)
            case BatchPlanned():
                self._follow_device(state)
                self._begin(state)
            case ReplayScored() as fact:
                return self._check_scores(recorded, fact, state)
            case UpdateApplied() | UpdateSkipped() as fact:
                return self._check_update(recorded, fact, state)
            case WeightsPublished() as fact:
                return self._check_weights(recorded, fact, state)
            case CheckpointSaved() as fact:
                return self._check_checkpoint(recorded, fact, state)
        return None

    def _start(self, state: BufferState) -> Trainer:
        """The model; made with the base weights at the first call."""
        if self._training is None:
            self._training = self._made(state)
        return self._training

    def _begin(self, state: BufferState) -> None:
        assert state.plan is not None
        assert state.batch is not None
        self._start(state).begin(state.plan, state.batch)
        self._begun = True

    def _made(self, state: BufferState) -> Trainer:
        """A trainer with the base weights, on the kind of device that the learner recorded."""
        assert state.started is not None
        learner = state.settings.learner
        self._computing = device, precision = _computing(state)
        return self._make_trainer(
            self._policy,
            state.started.base_policy,
            blobs=self._blobs,
            settings=learner.model_copy(update={"device": device, "precision": precision}),
            stop=self._stop,
        )

    def _follow_device(self, state: BufferState) -> bool:
        """Continue on the kind of device that the next updates were computed on; returns whether it is another one.

        A run may be opened, resumed or continued on machines with other devices.
        """
        if self._training is None or _computing(state) == self._computing:
            return False
        if not self._begun:
            self._training = self._made(state)
            return True
        with scratch_folder() as folder:
            blobs = BlobStore(folder)
            saved = self._training.save(blobs, batch=state.batches - 1, version=state.version)
            self._training = self._made(state)
            self._training.restore(load_checkpoint(blobs, saved.blob))
        return True

    def _check_scores(self, recorded: Recorded, fact: ReplayScored, state: BufferState) -> Divergence | None:
        samples_by_position = {sample.position: sample for sample in earlier_samples(state)}
        positions = unpack_positions(fact.positions).tolist()
        self._follow_device(state)
        if not samples_by_position.keys() >= set(positions):
            raise CorruptEvent(f"position {recorded.position} scores steps that are in no earlier phase")
        samples = [samples_by_position[position] for position in positions]
        tokens_per_forward = state.settings.learner.tokens_per_forward
        perplexities = self._start(state).score(samples, tokens_per_forward=tokens_per_forward)
        recomputed = np.asarray(perplexities, dtype=np.float32)
        recorded_values = unpack_floats(fact.perplexities)
        distance = float(np.max(np.abs(np.log(recomputed) - np.log(recorded_values)), initial=0.0))
        if distance <= (self._tolerance or 0.0):
            return None
        outcome = f"others, apart by {distance:.2e} nats"
        return self._compare(recorded, state, "loss", "perplexities as recorded", outcome, apart=distance)

    def _check_update(
        self, recorded: Recorded, fact: UpdateApplied | UpdateSkipped, state: BufferState
    ) -> Divergence | None:
        planned = state.plan
        if (
            planned is None
            or planned.batch != fact.batch
            or not 0 <= fact.minibatch < len(planned.minibatches) // 4
        ):
            raise CorruptEvent(
                f"position {recorded.position} reports mini-batch {fact.minibatch} of batch {fact.batch}, which is not planned"
            )
        if fact.minibatch == 0 and self._follow_device(state):
            self._begin(state)  # planned by a learner that another machine's replaced before the first update
        if state.fingerprint is not None and state.fingerprint not in self._machines:
            self._machines.append(state.fingerprint)
        recomputed = self._start(state).step(fact.minibatch)
        update_deviation = None
        if isinstance(fact, UpdateApplied) and isinstance(recomputed, UpdateApplied):
            update_deviation = deviation(recorded.position, fact, recomputed)
        if self._tolerance is None:
            differences = list(update_differences(fact, recomputed))
        else:
            valued = planned.critic_version is not None or planned.model == CRITIC
            differences = [*incomparable(fact, recomputed, valued=valued), *self._broken_chain(fact)]
            if update_deviation is not None and not differences:
                self.deviations.append(update_deviation)
                self._judge(recorded, state, update_deviation)
        divergence = self._diverged(
            recorded,
            state,
            differences,
            UPDATE_STAGES,
            apart=None if update_deviation is None else update_deviation.largest,
        )
        reached = self._reached[fact.model] = fact.after if isinstance(fact, UpdateApplied) else fact.state
        self.updates += divergence is None
        self.digests += divergence is None and reached != "" and self._tolerance is None
        return divergence

    def _broken_chain(self, fact: UpdateApplied | UpdateSkipped) -> list[Difference]:
        """Check that recorded state digests form one chain: with a tolerance they cannot be recomputed."""
        before = fact.before if isinstance(fact, UpdateApplied) else fact.state
        reached = self._reached.get(fact.model, before)
        if before == reached or not before or not reached:
            return []
        found = f"the update before it ended in {reached}"
        return [Difference(what="weights", expected=f"before {before}", found=found)]

    def _check_weights(
        self, recorded: Recorded, fact: WeightsPublished, state: BufferState
    ) -> Divergence | None:
        content = b""
        if fact.model == POLICY and fact.version == 0 and state.started is not None:
            digest = state.started.base_policy.sha256
        else:
            content = self._start(state).weights(fact.model)
            digest = digest_hex(content)
        if self._tolerance is not None and content:
            if (published := self._at_hand(fact.weights)) is not None:
                self._measure(recorded, state, weights_distance(published, content))
            digest = fact.weights.sha256
        divergence = self._compare(
            recorded, state, "weights", f"sha256 {fact.weights.sha256}", f"sha256 {digest}"
        )
        self.weights += divergence is None
        return divergence

    def _check_checkpoint(
        self, recorded: Recorded, fact: CheckpointSaved, state: BufferState
    ) -> Divergence | None:
        sink = DigestOnlySink()
        saved = self._start(state).save(sink, batch=fact.batch, version=fact.version)
        counters = saved.counters
        expected = f"update {fact.update}, state {fact.state}"
        if self._tolerance is None:
            found = f"update {counters.update}, state {counters.state}"
            if not fact.shards:  # a sharded checkpoint is other files of the same state
                expected += f", sha256 {fact.blob.sha256}"
                found += f", sha256 {saved.blob.sha256}"
        else:
            is_known = self._reached.keys() == {POLICY, *counters.beside} and all(self._reached.values())
            found = f"update {counters.update}, state {combined(self._reached) if is_known else fact.state}"
            if (recorded_one := self._whole(fact)) is not None:
                self._measure(
                    recorded, state, weights_distance(recorded_one, sink.content, prefix="weights/")
                )
        divergence = self._compare(recorded, state, "weights", expected, found)
        self.checkpoints += divergence is None
        return divergence

    def _at_hand(self, ref: BlobRef) -> bytes | None:
        """A blob to compare with, unless it was released or damaged: the audit checks the bits of blobs."""
        try:
            return self._blobs.get(ref)
        except HindcastError:
            return None

    def _whole(self, fact: CheckpointSaved) -> bytes | None:
        """A checkpoint to compare with as one file, likewise."""
        try:
            checkpoint = load_checkpoint(self._blobs, fact.blob)
        except CheckpointCorrupt:
            return None
        return encode_checkpoint(checkpoint.tensors, checkpoint.counters)

    def _measure(self, recorded: Recorded, state: BufferState, distance: float) -> None:
        """Record the policy's distance from the recorded one after the latest update."""
        if self.deviations:
            latest = self.deviations[-1].with_policy(distance)
            self.deviations[-1] = latest
            self._judge(recorded, state, latest)

    def _judge(self, recorded: Recorded, state: BufferState, update_deviation: Deviation) -> None:
        """Remember the first place beyond the tolerance. Recomputation continues, since later deviations are reported, too."""
        if self.beyond is not None or self._tolerance is None or update_deviation.largest <= self._tolerance:
            return
        difference = Difference(
            what="weights" if update_deviation.where == POLICY_DISTANCE else "loss",
            expected=f"{update_deviation.where} {update_deviation.recorded!r}, within {self._tolerance:g}",
            found=f"{update_deviation.where} {update_deviation.computed!r}, apart by {update_deviation.largest:.2e}",
        )
        self.beyond = self._diverged(
            recorded, state, [difference], UPDATE_STAGES, apart=update_deviation.largest
        )

    def _compare(
        self,
        recorded: Recorded,
        state: BufferState,
        what: What,
        expected: str,
        found: str,
        *,
        apart: float | None = None,
    ) -> Divergence | None:
        """The divergence at an event of which one thing was compared; None where it is the same."""
        found_differences = (
            [] if expected == found else [Difference(what=what, expected=expected, found=found)]
        )
        return self._diverged(recorded, state, found_differences, (what,), apart=apart)

    def _diverged(
        self,
        recorded: Recorded,
        state: BufferState,
        found: list[Difference],
        stages: tuple[What, ...],
        *,
        apart: float | None = None,
    ) -> Divergence | None:
        return diagnose(
            recorded,
            found,
            stages=stages,
            witness=witness_of(
                state.fingerprint,
                settings=state.settings.learner,
                code_rev=self._code_rev,
                plugins=state.plugins,
                earlier=self._machines,
            ),
            apart=apart,
        )


def _computing(state: BufferState) -> tuple[Device, WantedPrecision]:
    """`learner.device` and `learner.precision` that repeat what the machine in force computed."""
    assert state.started is not None
    machine = state.fingerprint or state.started.fingerprint
    return device_then(machine), precision_then(machine, state.settings.learner.precision)


def _counters(update: int, batch: int, version: int, state: str) -> str:
    return f"update {update}, batch {batch}, version {version}, state {state}"
