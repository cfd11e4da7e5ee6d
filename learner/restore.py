"""Restores a learner from the log: the newest readable checkpoint, then the updates after it, computed again.

Invariant 1, log is the truth: without any readable checkpoint the base weights and the log are enough.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

import structlog

from hindcast.core.errors import CheckpointCorrupt, ReplayDiverged
from hindcast.core.ids import digest_hex
from hindcast.core.rl.combined_state import POLICY
from hindcast.events.catalogue import CheckpointSaved
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.port import EventLog
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.history import History, PastBatch, fold_history
from hindcast.learner.numerics import configure, differences, fingerprint_of
from hindcast.learner.trainer import MakeTrainer, Trainer
from hindcast.learner.training import Training
from hindcast.learner.verify.comparison import compare_updates
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import load_checkpoint

T = TypeVar("T")
_log = structlog.get_logger()


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
        saved = history.checkpoint
        if saved is None:
            break
        try:
            await compute(lambda: _load(training, blobs, saved))  # noqa: B023
        except CheckpointCorrupt as error:
            _log.warning(
                "a checkpoint is unreadable; an older one or the base weights are used", reason=str(error)
            )
            unreadable.add(saved.blob.sha256)
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
            again = await compute(lambda: training.step(index))  # noqa: B023
            difference = compare_updates(recorded, again)
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


def _load(training: Trainer, blobs: BlobStore, saved: CheckpointSaved) -> None:
    checkpoint = load_checkpoint(blobs, saved.blob)
    if checkpoint.counters.state != saved.state:
        raise CheckpointCorrupt(
            f"the checkpoint of update {saved.update} claims state {checkpoint.counters.state[:16]}…, its event "
            f"{saved.state[:16]}…"
        )
    training.restore(checkpoint)


def _unfinished(batches: list[PastBatch], state: BufferState) -> int | None:
    return batches[-1].plan.batch if batches and state.batch is not None else None


def _explain(history: History, position: int, what: str, expected: str, found: str) -> str:
    then = history.state.fingerprint
    changed = differences(then, fingerprint_of(history.state.settings.learner)) if then is not None else []
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
