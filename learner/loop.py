"""The learner process: folds the log, and takes the training step that the fold says is due next.

    log ──tail──> ReplayBuffer ──> what is due? ──> worker thread ──> fact ──decide──> log
                       ^                                                               │
                       └───────────────────────────────────────────────────────────────┘

Consumes episodes, steps, verdicts, and its own events, which come back through the log.
Waits for enough informative groups (`learner.batch_wait_s`; a longer wait is recorded), for room on a full disk
(`storage.full_wait_s`, likewise), for its own events to be acknowledged and read back (`log.append_timeout_s`), and for one
update at a time in its worker thread.
Produces learner.started where another machine was recorded, samples.swept, replay.scored, batch.planned -> update.applied / skipped per mini-batch -> weights.published ->
checkpoint.saved, snapshot.saved, blob.released; mismatch.exceeded in the same append as the update that causes it.

Invariant 3, plan before training: the plan is durable before its first update is computed. Invariant 8, one writer per
chain (`learner.log_follower`). Invariant 1: what is due follows from the fold alone. After a crash between any two events the
same step is due again and gives the same result, bit for bit.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

import msgspec
import structlog

from hindcast.core.domain.arrays import pack_floats, pack_positions
from hindcast.core.errors import DiskFull, HindcastError
from hindcast.core.rl.combined_state import POLICY
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    CheckpointSaved,
    LearnerStarted,
    ReplayScored,
    WaitExceeded,
    WeightsPublished,
)
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.learner.batch_plan import minibatches_of, missing, plan, require_consistent, sweep
from hindcast.learner.buffer.records import Sample
from hindcast.learner.buffer.snapshots import LEARNER, FoldedLog, source_of
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.log_follower import LearnerLogFollower
from hindcast.learner.metrics import mismatch_alarm
from hindcast.learner.numerics import fingerprint_of
from hindcast.learner.planners.phases import unscored
from hindcast.learner.restore import Restored, restore
from hindcast.learner.retention import Release, is_checkpoint_due, is_snapshot_due, leftovers, releases
from hindcast.learner.spans import TrainingSpans, updated
from hindcast.learner.training import MakeTrainer, Trainer, Training
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.snapshots import append_snapshot

T = TypeVar("T")
_log = structlog.get_logger()


class LearnerReport(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of the learner when it ended."""

    updates: int
    version: int
    batches: int
    recomputed: int
    """Updates that were computed again at the start."""


async def run_learner(
    log: EventLog,
    blobs: BlobStore,
    *,
    publisher: Publisher,
    policy: Path,
    until_updates: int | None = None,
    make_trainer: MakeTrainer = Training,
) -> LearnerReport:
    """Train until the log holds `until_updates` optimizer steps (None: forever), then return.

    `policy`: folder that the run's base weights belong to. The settings are those that the log records. Stops exactly at the
    requested number, or when a drain with an evaluation ends the run (`EVALUATE`), if necessary within a batch; the next
    start continues there. Cancellation takes effect at once: a running computation ends after its current forward pass, and
    is computed again at the next start.

    Raises:
        ExpectationFailed: another learner writes to this run.
        ReplayDiverged: updates after the checkpoint give other results here than recorded.
        ForeignLog, CorruptEvent, ModelFileError, BlobMissing, BrokerUnreachable: see their messages.
    """
    async with open_learner(
        log, blobs, publisher=publisher, policy=policy, make_trainer=make_trainer
    ) as learner:
        await learner.train(until_updates)
    return learner.report()


@asynccontextmanager
async def open_learner(
    log: EventLog,
    blobs: BlobStore,
    *,
    publisher: Publisher,
    policy: Path,
    make_trainer: MakeTrainer = Training,
) -> AsyncIterator["Learner"]:
    """A learner at the end of the log, which follows the log within the block. Parameters and errors: see `run_learner`."""
    stop = Event()
    executor = ThreadPoolExecutor(1, thread_name_prefix="learner")
    try:
        restored = await restore(
            log, blobs, policy=policy, executor=executor, stop=stop, make_trainer=make_trainer
        )
        learner = Learner(log, blobs, publisher=publisher, restored=restored, executor=executor)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(learner.following.follow(), name="learner follows the log")
            yield learner
            following.cancel()
    except ExceptionGroup as failed:
        raise _first(failed) from failed
    finally:
        stop.set()
        executor.shutdown(wait=False, cancel_futures=True)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Unwrap the error from the group of a TaskGroup."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = next((e for e in error.exceptions if isinstance(e, HindcastError)), error.exceptions[0])
    return error


class Learner:
    """A running learner: takes the steps that are due and appends their events."""

    def __init__(
        self,
        log: EventLog,
        blobs: BlobStore,
        *,
        publisher: Publisher,
        restored: Restored,
        executor: ThreadPoolExecutor,
    ) -> None:
        self._log = log
        self._blobs = blobs
        self._publisher = publisher
        self._executor = executor
        self.following = LearnerLogFollower(log, publisher, state=restored.state, chains=restored.chains)
        self._training: Trainer = restored.training
        self._recomputed = restored.recomputed
        self._begun = restored.begun
        """Number of the batch that `training` has begun."""
        self._spans = TrainingSpans(log)
        self._machine = fingerprint_of(restored.state.settings.learner)

    @property
    def _state(self) -> BufferState:
        """The current fold; it grows during every await."""
        return self.following.state

    def report(self) -> LearnerReport:
        """Updates, version and batches so far."""
        state = self._state
        return LearnerReport(
            updates=state.updates, version=state.version, batches=state.batches, recomputed=self._recomputed
        )

    async def train(self, until_updates: int | None) -> None:
        """Take the steps that are due, one event at a time, until the goal is reached."""
        await self.begin()
        waiting_since = asyncio.get_running_loop().time()
        while True:
            state = self._state
            reached = state.ending or (until_updates is not None and state.updates >= until_updates)
            if reached and self._is_computing:
                return
            training = state.batch is not None
            if await self.finish_one():
                if training:
                    waiting_since = asyncio.get_running_loop().time()
            elif reached:
                return
            elif not await self.decide_one():
                waiting_since = await self._wait(waiting_since)

    async def begin(self) -> None:
        """Delete what a crash left undeleted, and record the machine."""
        for blob in leftovers(self._state):
            await self._compute(partial(self._blobs.release, blob))
        await self._record_machine()

    @property
    def _is_computing(self) -> bool:
        """Whether updates of the current batch are left."""
        state = self._state
        if state.batch is None or state.plan is None:
            return False
        return state.batch.done < len(minibatches_of(state.plan))

    async def finish_one(self) -> bool:
        """Take the next step of what was decided before: an update, weights, a checkpoint. False: nothing is left of it."""
        state, settings = self._state, self._state.settings
        if 0 not in state.weights:
            await self._publish_base()
        elif self._is_computing:
            await self._update()
        elif state.batch is not None:
            await self._publish_weights()
        elif is_checkpoint_due(state, settings.learner):
            await self._save_checkpoint()
        elif is_snapshot_due(state, settings.storage):
            await self._save_snapshot()
        elif releasable := releases(state, settings.learner):
            await self._release(releasable[0])
        else:
            return False
        return True

    async def decide_one(self, *, may_plan: bool = True) -> bool:
        """Take the next decision that is due: a sweep, scores, a plan. False: none is."""
        state, settings = self._state, self._state.settings
        if sweeps := sweep(state, settings):
            await self.following.decide(sweeps[0], entity="samples")
        elif samples := unscored(state, settings.learner):
            await self._score(samples)
        elif may_plan and (planned := plan(state, settings)):
            await self._plan(planned)
        else:
            return False
        return True

    async def _record_machine(self) -> None:
        """Record where updates are computed, if the log names another machine: who opens or resumes a run may have no GPU."""
        if self._machine != self._state.fingerprint:
            await self.following.decide(LearnerStarted(fingerprint=self._machine), entity="learner")

    async def _publish_base(self) -> None:
        """Publish version 0, the base weights, so that actors find it."""
        assert self._state.started is not None
        base = self._state.started.base_policy
        fact = WeightsPublished(version=0, model=POLICY, weights=base, update=0)
        await self.following.decide(fact, entity="policy_v0")

    async def _score(self, samples: list[Sample]) -> None:
        """Record the policy's perplexity on replayable steps, which the plan of a phase needs."""
        training, tokens_per_forward = self._training, self._state.settings.learner.tokens_per_forward
        perplexities = await self._compute(
            lambda: training.score(samples, tokens_per_forward=tokens_per_forward)
        )
        if self._state.settings.learner.tokens_per_forward != tokens_per_forward:
            return  # the recipe changed meanwhile: scores must follow from the settings at their position
        fact = ReplayScored(
            version=self._state.version,
            positions=pack_positions([sample.position for sample in samples]),
            perplexities=pack_floats(perplexities),
        )
        await self.following.decide(fact, entity="replay")

    async def _plan(self, planned: BatchPlanned) -> None:
        """Record a plan. Raises PluginError where it is not consistent."""
        require_consistent(planned, self._state.settings.learner)
        async with self._spans.planning(planned):
            await self.following.decide(
                planned, entity=f"batch_{planned.batch}", correlation=f"batch_{planned.batch}"
            )
        _log.info(
            "batch planned", batch=planned.batch, episodes=len(planned.episodes), version=planned.version
        )

    async def _update(self) -> None:
        batch, plan_ = self._state.batch, self._state.plan
        assert batch is not None
        assert plan_ is not None
        training, index = self._training, batch.done
        name, minibatch = f"batch_{batch.number}", minibatches_of(plan_)[index]
        async with self._spans.updating(
            plan_, minibatch, index=index, position=batch.position
        ) as update_span:
            if self._begun != batch.number:
                await self._compute(lambda: training.begin(plan_, batch))
                self._begun = batch.number
            fact = await self._compute(lambda: training.step(index))
            await self._record_machine()  # the run may have been resumed from another machine meanwhile
            alarm = mismatch_alarm(fact, plan_, self._state.settings.learner)
            await self.following.decide(
                fact,
                entity=name,
                ordinal=index,
                causation=batch.event,
                correlation=name,
                follows=() if alarm is None else (alarm,),
            )
            updated(update_span, fact)
            kind = type(fact).__name__
            _log.info("update", update=fact.update, batch=fact.batch, minibatch=index, kind=kind)

    async def _publish_weights(self) -> None:
        state = self._state
        assert state.batch is not None
        assert state.plan is not None
        training, model = self._training, state.plan.model
        auxiliary = state.auxiliary_model(model)
        current, updates = (
            (state.version, state.updates) if model == POLICY else (auxiliary.version, auxiliary.updates)
        )
        version = current + 1
        name = f"batch_{state.batch.number}"
        with self._spans.publishing(version):
            weights = await self._store(lambda: self._blobs.put(training.weights(model)))
            fact = WeightsPublished(version=version, model=model, weights=weights, update=updates)
            await self.following.decide(
                fact, entity=f"{model}_v{version}", causation=state.batch.event, correlation=name
            )
        _log.info("weights published", model=model, version=version, update=updates)

    async def _save_checkpoint(self) -> None:
        state, training = self._state, self._training
        batch, version = state.batches - 1, state.version
        saved = await self._store(lambda: training.save(self._blobs, batch=batch, version=version))
        fact = CheckpointSaved(
            update=saved.counters.update,
            batch=batch,
            version=version,
            state=saved.counters.state,
            blob=saved.blob,
            shards=saved.shards,
        )
        await self.following.decide(fact, entity=f"batch_{batch}", correlation=f"batch_{batch}")

    async def _save_snapshot(self) -> None:
        """Store the fold. No await comes in between, so that state and chains belong to the same event."""
        state = self._state
        content = LEARNER.encode(
            FoldedLog(state, self.following.chains.links, source_of(state.settings.learner.algorithm))
        )
        position, latest, digest = state.position, state.latest, state.digest.value
        blob = await self._store(lambda: self._blobs.put(content))
        snapshot_position = await append_snapshot(
            self._log,
            self._publisher,
            LEARNER,
            blob,
            position=position,
            position_digest=latest,
            log_digest=digest,
        )
        await self.following.reach(snapshot_position)
        _log.info("snapshot saved", position=position, size_bytes=blob.size)

    async def _release(self, release: Release) -> None:
        """Append the event before deleting: a blob missing without an event counts as lost."""
        fact = BlobReleased(blob=release.blob, reason=release.reason)
        position = await self._publisher.decide(
            fact, entity=release.blob.sha256, policy_version=self._state.version
        )
        await self.following.reach(position)
        await self._compute(lambda: self._blobs.release(release.blob))

    async def _wait(self, since: float) -> float:
        """Wait for more events, or record that a batch is overdue; returns the time since when it is missing."""
        limit_s = self._state.settings.learner.batch_wait_s
        position = self._state.position
        try:
            async with asyncio.timeout_at(since + limit_s):
                await self.following.more(than=position)
        except TimeoutError:
            waited_for = missing(self._state, self._state.settings)
            await self._report_wait("learner.batch_wait_s", limit_s, waited_for)
            return asyncio.get_running_loop().time()
        return since

    async def _store(self, work: Callable[[], T]) -> T:
        """Run work that stores a blob; on a full disk repeat it, since training cannot continue without it."""
        while True:
            try:
                return await self._compute(work)
            except DiskFull as error:
                _log.error("the learner waits for room", reason=str(error))
                limit_s = self._state.settings.storage.full_wait_s
                await self._report_wait("storage.full_wait_s", limit_s, "room on the disk of the blobs")

    async def _report_wait(self, setting: str, limit_s: float, waited_for: str) -> None:
        fact = WaitExceeded(setting=setting, limit_s=limit_s, waited_for=waited_for)
        await self._publisher.publish(fact, entity="learner")

    async def _compute(self, work: Callable[[], T]) -> T:
        """Run blocking work in the single worker thread; the event loop stays free."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
