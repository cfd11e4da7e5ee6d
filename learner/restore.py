"""Restores a learner from the log: the newest readable checkpoint, then the updates after it, computed again.

Invariant 1, log is the truth: without any readable checkpoint the base weights and the log are enough. The log is folded from
the newest usable snapshot, so that a start does not depend on the length of history, else from the beginning. A snapshot is
usable if a checkpoint at it or after it can be read: the updates since then are computed again.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple, TypeVar

import structlog

from hindcast.core.errors import CheckpointCorrupt, ForeignLog, ReplayDiverged
from hindcast.core.ids import digest_hex
from hindcast.core.plugins import require_plugins
from hindcast.core.rl.algorithm import ALGORITHMS
from hindcast.core.rl.combined_state import POLICY
from hindcast.events.catalogue import BatchPlanned, CheckpointSaved, UpdateApplied, UpdateSkipped
from hindcast.events.envelope import Recorded
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import Bookmark, read
from hindcast.learner.buffer.records import Batch
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.snapshots import LEARNER, FoldedLog
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.numerics import configure, differences, fingerprint_of
from hindcast.learner.training import MakeTrainer, Trainer, Training
from hindcast.learner.verify.comparison import compare_updates
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import load_checkpoint
from hindcast.storage.snapshots import standings

T = TypeVar("T")
Usable = Callable[[CheckpointSaved], bool]
_log = structlog.get_logger()


@dataclass(slots=True)
class PastBatch:
    """A planned batch, with its updates recorded so far."""

    plan: BatchPlanned
    batch: Batch
    outcomes: list[tuple[int, UpdateApplied | UpdateSkipped]] = field(default_factory=list)
    """Position and event of each update, in order."""


@dataclass(slots=True)
class History:
    """The log folded to its end, and the batches since a checkpoint."""

    state: BufferState
    chains: ChainChecker
    """Ends of all hash chains."""
    checkpoint: CheckpointSaved | None = None
    """The newest one that may be restored; None: start from the base weights."""
    batches: list[PastBatch] = field(default_factory=list)
    """Batches planned after that checkpoint; the last may be unfinished."""


class _Base(NamedTuple):
    """A checkpoint to compute from, and the position up to which it holds everything."""

    position: int
    checkpoint: CheckpointSaved | None


async def fold_history(log: EventLog, blobs: BlobStore, *, unreadable: set[str]) -> History:
    """Fold the log up to its current end. `unreadable`: sha256 of checkpoints that must not be used.

    Raises:
        ForeignLog: it does not begin with run.started.
        PluginError: an algorithm that the run was started with is missing, or has another state version.
        CorruptEvent, UnknownVersion: see `events.log.reader.read`; the learner skips nothing, since plans digest every byte.
    """

    def usable(checkpoint: CheckpointSaved) -> bool:
        return checkpoint.blob.sha256 not in unreadable and all(map(blobs.has, checkpoint.parts))

    async with aclosing(standings(log, blobs, LEARNER)) as snapshots:
        async for snapshot in snapshots:
            if not snapshot.state.is_current:
                continue
            history, base = await _fold(log, _begun(snapshot.state), usable)
            require_plugins(history.state.plugins, ALGORITHMS)
            if base.checkpoint is not None:
                if base.checkpoint is history.checkpoint:
                    return history
                return await _fold_from(log, _begun(LEARNER.decode(snapshot.content)), base)
    history, base = await _fold(log, _empty(), usable)
    require_plugins(history.state.plugins, ALGORITHMS)
    if history.state.started is None:
        raise ForeignLog(
            f"the log of run {log.run} does not begin with run.started (it holds {history.state.position} events): the "
            "learner does not know what to train. Start the run with: hindcast start"
        )
    return history if base.checkpoint is history.checkpoint else await _fold_from(log, _empty(), base)


def _empty() -> History:
    return History(ReplayBuffer().initial(), ChainChecker())


def _begun(folded: FoldedLog) -> History:
    """The history at a snapshot, whose newest checkpoint holds every batch before it."""
    checkpoints = folded.state.checkpoints
    return History(folded.state, folded.chains(), checkpoints[-1] if checkpoints else None)


async def _fold(log: EventLog, history: History, usable: Usable) -> tuple[History, _Base]:
    """Fold to the end. Returns the batches after the newest checkpoint, and the newest usable checkpoint.

    Nearly always both are the same. If not, `_fold_from` folds again: batches hold their samples, so those before a checkpoint
    are not kept for this rare case.
    """
    base = _Base(0, None)
    if history.checkpoint is not None and usable(history.checkpoint):
        base = _Base(history.state.position, history.checkpoint)
    async with aclosing(_folding(log, history)) as events:
        async for event in events:
            fact = event.fact
            if isinstance(fact, CheckpointSaved):
                history.checkpoint, history.batches = fact, []
                if usable(fact):
                    base = _Base(event.position, fact)
            else:
                _keep(history, event)
    return history, base


async def _fold_from(log: EventLog, history: History, base: _Base) -> History:
    """Fold to the end, with the batches after `base`."""
    history.checkpoint = base.checkpoint
    async with aclosing(_folding(log, history)) as events:
        async for event in events:
            if event.position > base.position:
                _keep(history, event)
    return history


async def _folding(log: EventLog, history: History) -> AsyncGenerator[Recorded, None]:
    """Fold the events after `history` and yield each."""
    buffer, state = ReplayBuffer(), history.state
    bookmark = Bookmark(position=state.position, digest=state.latest, first_digest=b"")
    reading = read(log, after=state.position, strict=True, bookmark=bookmark, chains=history.chains)
    async with aclosing(reading) as events:
        async for event in events:
            history.state = buffer.apply(history.state, event)
            yield event


def _keep(history: History, recorded: Recorded) -> None:
    """Record a planned batch, or an update of the last one."""
    fact = recorded.fact
    if isinstance(fact, BatchPlanned):
        assert history.state.batch is not None
        history.batches.append(PastBatch(fact, history.state.batch))
    elif isinstance(fact, UpdateApplied | UpdateSkipped) and history.batches:
        history.batches[-1].outcomes.append((recorded.position, fact))


@dataclass(slots=True)
class Restored:
    """A learner's state at the end of the log."""

    state: BufferState
    training: Trainer
    recomputed: int
    """Updates computed again."""
    begun: int | None
    """Number of the unfinished batch that the training is in."""
    chains: ChainChecker
    """Ends of all hash chains at that position."""


async def restore(
    log: EventLog,
    blobs: BlobStore,
    *,
    policy: Path,
    executor: ThreadPoolExecutor,
    stop: Event,
    make_trainer: MakeTrainer = Training,
    whole_batches: bool = False,
) -> Restored:
    """Fold the log and bring a model to its end; `whole_batches`: only to the latest published version.

    An unreadable checkpoint is reported and an older one used, at last the base weights.

    Raises:
        ReplayDiverged: an update gives another result than recorded.
    """

    async def compute(work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    unreadable: set[str] = set()
    while True:
        history = await fold_history(log, blobs, unreadable=unreadable)
        started, settings = history.state.started, history.state.settings.learner
        assert started is not None
        configure(settings.threads)
        base = started.base_policy
        training = await compute(
            partial(make_trainer, policy, base, blobs=blobs, settings=settings, stop=stop)
        )
        checkpoint = history.checkpoint
        if checkpoint is None:
            break
        try:
            await compute(lambda: _load(training, blobs, checkpoint))  # noqa: B023
        except CheckpointCorrupt as error:
            _log.warning(
                "a checkpoint is unreadable; an older one or the base weights are used", reason=str(error)
            )
            unreadable.add(checkpoint.blob.sha256)
            continue
        break
    recomputed = 0
    unfinished = _unfinished(history.batches, history.state)
    for past in history.batches:
        if whole_batches and past.plan.batch == unfinished:
            break
        await compute(lambda: training.begin(past.plan, past.batch))  # noqa: B023
        for position, recorded in past.outcomes:
            index = recorded.minibatch
            recomputed_update = await compute(lambda: training.step(index))  # noqa: B023
            difference = compare_updates(recorded, recomputed_update)
            if difference is not None:
                raise ReplayDiverged(
                    _explain(history, position, difference.what, difference.expected, difference.found)
                )
            recomputed += 1
    if recomputed:
        _log.info("updates after the checkpoint were computed again", updates=recomputed)
    return Restored(history.state, training, recomputed, unfinished, history.chains)


async def recompute_weights(log: EventLog, blobs: BlobStore, *, policy: Path) -> tuple[bytes, int]:
    """Recompute the latest published weights of a log; returns them and the number of updates that it took.

    Raises:
        ReplayDiverged: they differ from the published ones.
    """
    stop = Event()
    with ThreadPoolExecutor(1, thread_name_prefix="learner") as executor:
        try:
            restored = await restore(
                log, blobs, policy=policy, executor=executor, stop=stop, whole_batches=True
            )
        finally:
            stop.set()
    weights = restored.training.weights(POLICY)
    published = restored.state.weights[restored.state.version]
    if digest_hex(weights) != published.weights.sha256:
        raise ReplayDiverged(
            f"the weights of version {published.version} come out with sha256 {digest_hex(weights)[:16]}…, but were published "
            f"with {published.weights.sha256[:16]}…. Run: hindcast verify"
        )
    return weights, restored.recomputed


def _load(training: Trainer, blobs: BlobStore, event: CheckpointSaved) -> None:
    checkpoint = load_checkpoint(blobs, event.blob)
    if checkpoint.counters.state != event.state:
        raise CheckpointCorrupt(
            f"the checkpoint of update {event.update} claims state {checkpoint.counters.state[:16]}…, its event "
            f"{event.state[:16]}…"
        )
    training.restore(checkpoint)


def _unfinished(batches: list[PastBatch], state: BufferState) -> int | None:
    return batches[-1].plan.batch if batches and state.batch is not None else None


def _explain(history: History, position: int, what: str, expected: str, found: str) -> str:
    recorded_on = history.state.fingerprint
    changed = (
        differences(recorded_on, fingerprint_of(history.state.settings.learner))
        if recorded_on is not None
        else []
    )
    cause = (
        f"This machine or its libraries differ from those that recorded it: {'; '.join(changed)}."
        if changed
        else "Versions, processor and threads are the recorded ones, so the code or the stored numbers changed."
    )
    return (
        f"the update at position {position} does not come out as recorded: {what} differ (recorded {expected}, computed "
        f"{found}). {cause} Ways out: start the run with the recorded versions on such a processor; keep its newest "
        "checkpoint readable, so that nothing has to be computed again; or begin a new run from its last weights. "
        "Run: hindcast verify"
    )
