"""Folding the whole log at a start, and what stands in it after a checkpoint: everything needed to go on from there."""

from contextlib import aclosing
from dataclasses import dataclass, field

from core.errors import ForeignLog
from events.catalogue import BatchPlanned, CheckpointSaved, UpdateApplied, UpdateSkipped
from events.log import EventLog
from events.reader import read
from learner.buffer import ReplayBuffer
from learner.episodes import Batch
from learner.state import BufferState
from storage.blobs import BlobStore


@dataclass(slots=True)
class PastBatch:
    """A batch that was planned, with the updates recorded of it so far."""

    plan: BatchPlanned
    batch: Batch
    outcomes: list[tuple[int, UpdateApplied | UpdateSkipped]] = field(default_factory=list)
    """Position and fact, in order."""


@dataclass(slots=True)
class History:
    """The log folded to its end, and the way there from a checkpoint."""

    state: BufferState
    checkpoint: CheckpointSaved | None
    """The newest one that may be restored; None: start from the base weights."""
    batches: list[PastBatch]
    """Planned after that checkpoint; the last may be unfinished."""


async def fold_history(log: EventLog, blobs: BlobStore, *, unreadable: set[str]) -> History:
    """Fold the log as far as it goes now. `unreadable`: sha256 of checkpoints not to build on.

    Raises:
        ForeignLog: it does not begin with run.started.
        CorruptEvent, UnknownVersion: see `events.reader.read`; the learner skips nothing, since plans digest every byte.

    """
    buffer = ReplayBuffer()
    history = History(buffer.initial(), None, [])
    async with aclosing(read(log, after=0, strict=True)) as recordeds:
        async for recorded in recordeds:
            fact = recorded.fact
            history.state = buffer.apply(history.state, recorded)
            if isinstance(fact, BatchPlanned):
                assert history.state.batch is not None
                history.batches.append(PastBatch(fact, history.state.batch))
            elif isinstance(fact, UpdateApplied | UpdateSkipped) and history.batches:
                history.batches[-1].outcomes.append((recorded.position, fact))
            elif isinstance(fact, CheckpointSaved):
                usable = fact.blob.sha256 not in unreadable and blobs.has(fact.blob)
                if usable:
                    history.checkpoint, history.batches = fact, []
    if history.state.started is None:
        raise ForeignLog(
            f"the log of run {log.run} does not begin with run.started (it holds {history.state.position} events): the "
            "learner does not know what to train. Start the run with: hindcast start"
        )
    return history
