"""Folds the log at a start, and collects the batches after a checkpoint: all that is needed to continue training.

Folds from the newest usable snapshot, so that a start does not depend on the length of history, else from the beginning.
A snapshot is usable if a checkpoint at it or after it can be read: the updates since then are computed again.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from hindcast.core.errors import ForeignLog
from hindcast.core.plugins import require_plugins
from hindcast.core.rl.algorithm import ALGORITHMS
from hindcast.events.catalogue import BatchPlanned, CheckpointSaved, UpdateApplied, UpdateSkipped
from hindcast.events.envelope import Recorded
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import Bookmark, read
from hindcast.learner.buffer.records import Batch
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.snapshots import LEARNER, FoldedLog
from hindcast.learner.buffer.state import BufferState
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.snapshots import standings


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


Usable = Callable[[CheckpointSaved], bool]


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

    def usable(saved: CheckpointSaved) -> bool:
        return saved.blob.sha256 not in unreadable and all(map(blobs.has, saved.parts))

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
    saved = folded.state.checkpoints
    return History(folded.state, folded.chains(), saved[-1] if saved else None)


async def _fold(log: EventLog, history: History, usable: Usable) -> tuple[History, _Base]:
    """Fold to the end. Returns the batches after the newest checkpoint, and the newest usable checkpoint.

    Nearly always both are the same. If not, `_fold_from` folds again: batches hold their samples, so those before a checkpoint
    are not kept for this rare case.
    """
    base = _Base(0, None)
    if history.checkpoint is not None and usable(history.checkpoint):
        base = _Base(history.state.position, history.checkpoint)
    async with aclosing(_folding(log, history)) as recordeds:
        async for recorded in recordeds:
            fact = recorded.fact
            if isinstance(fact, CheckpointSaved):
                history.checkpoint, history.batches = fact, []
                if usable(fact):
                    base = _Base(recorded.position, fact)
            else:
                _keep(history, recorded)
    return history, base


async def _fold_from(log: EventLog, history: History, base: _Base) -> History:
    """Fold to the end, with the batches after `base`."""
    history.checkpoint = base.checkpoint
    async with aclosing(_folding(log, history)) as recordeds:
        async for recorded in recordeds:
            if recorded.position > base.position:
                _keep(history, recorded)
    return history


async def _folding(log: EventLog, history: History) -> AsyncGenerator[Recorded, None]:
    """Fold the events after `history` and yield each."""
    buffer, state = ReplayBuffer(), history.state
    bookmark = Bookmark(position=state.position, digest=state.latest, first_digest=b"")
    reading = read(log, after=state.position, strict=True, bookmark=bookmark, chains=history.chains)
    async with aclosing(reading) as recordeds:
        async for recorded in recordeds:
            history.state = buffer.apply(history.state, recorded)
            yield recorded


def _keep(history: History, recorded: Recorded) -> None:
    """Record a planned batch, or an update of the last one."""
    fact = recorded.fact
    if isinstance(fact, BatchPlanned):
        assert history.state.batch is not None
        history.batches.append(PastBatch(fact, history.state.batch))
    elif isinstance(fact, UpdateApplied | UpdateSkipped) and history.batches:
        history.batches[-1].outcomes.append((recorded.position, fact))
