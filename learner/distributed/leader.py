"""A trainer in several processes: rank 0 leads, reads and writes the log alone, and sends orders to the followers.

    leader:    LeaderTraining.begin ──order──> begin   ┐ each with its own `Training`, on its part of the passes;
    follower:  follow()              <──order──        ┘ FSDP's collectives keep them in step

Invariant: every process executes the same orders in the same sequence, so that their collectives match. A follower waits for
its next order as long as its leader lives. A leader that loses a follower gets an error from its next collective, and the
supervisor of its processes (`app.system.learner_ranks`) ends it. Orders are MessagePack, never pickles.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import structlog
import torch
import torch.distributed as dist
from pydantic import BaseModel
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hindcast.core.errors import BlobMissing, CheckpointCorrupt, DiskFull
from hindcast.core.settings.schema import LearnerSettings
from hindcast.core.settings.section import RECORDED
from hindcast.core.structs import decode_msgpack
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.envelope import BlobRef
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.learner.distributed.ranks import DistributedRank
from hindcast.learner.training import Training
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import BlobSink, Checkpoint, Saved, load_checkpoint

WAIT_S = 600.0
"""Seconds after which a follower without an order checks again that its leader lives, and a leader at its end asks no longer."""
END = 0
"""In place of an order's size. No collective carries the end: gloo's threads still hold a collective's tensor for a moment
after it is done, and a process that ends in that moment is aborted (FSDP keeps the threads alive past
`destroy_process_group`)."""

_log = structlog.get_logger()


class MakeOrder(msgspec.Struct, frozen=True, tag=True):
    """Create the model from the base weights."""

    base: BlobRef
    settings: LearnerSettings


class BeginOrder(msgspec.Struct, frozen=True, tag=True):
    """See `Trainer.begin`."""

    plan: BatchPlanned
    batch: Batch


class StepOrder(msgspec.Struct, frozen=True, tag=True):
    """See `Trainer.step`."""

    index: int


class ScoreOrder(msgspec.Struct, frozen=True, tag=True):
    """See `Trainer.score`."""

    samples: list[Sample]
    tokens_per_forward: int


class WeightsOrder(msgspec.Struct, frozen=True, tag=True):
    """See `Trainer.weights`."""

    model: str


class SaveShard(msgspec.Struct, frozen=True, tag=True):
    """See `Trainer.save`: each process stores its part."""


class RestoreOrder(msgspec.Struct, frozen=True, tag=True):
    """See `Trainer.restore`."""

    checkpoint: BlobRef


Order = MakeOrder | BeginOrder | StepOrder | ScoreOrder | WeightsOrder | SaveShard | RestoreOrder


class Orders:
    """The sequence of orders from the leader to the followers."""

    def __init__(self, store: TCPStore) -> None:
        """`store`: shared by all processes."""
        self._store = store
        self._number = 0

    def give(self, order: Order) -> None:
        """Send an order to all followers; returns when they have it."""
        content = msgspec.msgpack.encode(order, enc_hook=_to_plain)
        self._store.set(f"order/{self._number}", str(len(content)))
        self._number += 1
        dist.broadcast(torch.frombuffer(bytearray(content), dtype=torch.uint8), src=0)

    def end(self) -> None:
        """Tell all followers that the run's goal is reached; returns when all know, since the store ends with its leader."""
        self._store.set(f"order/{self._number}", str(END))
        followers = range(1, dist.get_world_size())
        self._store.wait([f"ended/{rank}" for rank in followers], timedelta(seconds=WAIT_S))

    def take(self) -> Order | None:
        """Wait for the next order; None: there is none any more. Raises RuntimeError if the leader is gone."""
        key = f"order/{self._number}"
        while not self._arrived(key):
            pass
        if (size := int(self._store.get(key))) == END:
            self._store.set(f"ended/{dist.get_rank()}", "")
            return None
        content = torch.empty(size, dtype=torch.uint8)
        self._number += 1
        dist.broadcast(content, src=0)
        order: Order = decode_msgpack(content.numpy().tobytes(), Order, hook=_from_plain)
        return order

    def _arrived(self, key: str) -> bool:
        try:
            self._store.wait([key], timedelta(seconds=WAIT_S))
        except dist.DistStoreError:  # nothing yet; a lost connection is another error
            return False
        return True


def follow(
    orders: Orders, folder: Path, *, blobs: BlobStore, ranks: DistributedRank, sink: BlobSink | None = None
) -> None:
    """Execute the leader's orders until the last one.

    `folder`: the policy that the run begins with. `sink`: takes this process's parts of checkpoints; None: `blobs`.
    """
    training: Training | None = None
    while (order := orders.take()) is not None:
        if isinstance(order, MakeOrder):
            training = Training(folder, order.base, blobs=blobs, settings=order.settings, ranks=ranks)
            continue
        assert training is not None, "the leader makes a model before anything else"
        match order:
            case BeginOrder():
                training.begin(order.plan, order.batch)
            case StepOrder():
                training.step(order.index)
            case ScoreOrder():
                training.score(order.samples, tokens_per_forward=order.tokens_per_forward)
            case WeightsOrder():
                training.weights(order.model)
            case SaveShard():
                with suppress(DiskFull):  # the leader learns of it, and reports it until there is room
                    training.save_shard(sink or blobs)
            case RestoreOrder():
                with suppress(
                    CheckpointCorrupt
                ):  # the leader finds the same, and starts again with another checkpoint
                    checkpoint = _read(blobs, order.checkpoint)
                    _require_all(ranks, order.checkpoint, able=checkpoint is not None)
                    assert checkpoint is not None, "this process reported that it cannot read the checkpoint"
                    training.restore(checkpoint)


def _read(blobs: BlobStore, ref: BlobRef) -> Checkpoint | None:
    try:
        return load_checkpoint(blobs, ref)
    except CheckpointCorrupt as error:
        _log.warning("this process of the learner cannot read a checkpoint", reason=str(error))
        return None


def _require_all(ranks: DistributedRank, ref: BlobRef, *, able: bool) -> None:
    """Check that every process can read a checkpoint: all must take part in the collectives that follow.

    Raises:
        CheckpointCorrupt: in every process; names those that cannot read it.
    """
    if unable := ranks.unable(able=able):
        raise CheckpointCorrupt(
            f"the checkpoint {ref.sha256[:16]}… cannot be read by process {', '.join(map(str, unable))} of the learner. All "
            "processes must reach the run's blobs (storage.blobs, or a home on a shared disk)"
        )


class LeaderTraining:
    """The leader's trainer: sends each call as an order to the followers, then runs it on its own `Training`."""

    def __init__(self, training: Training, orders: Orders, ranks: DistributedRank) -> None:
        self._training = training
        self._orders = orders
        self._ranks = ranks

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """See `Trainer.begin`."""
        self._orders.give(BeginOrder(plan, batch))
        self._training.begin(plan, batch)

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """See `Trainer.step`."""
        self._orders.give(StepOrder(index))
        return self._training.step(index)

    def score(self, samples: Sequence[Sample], *, tokens_per_forward: int) -> list[float]:
        """See `Trainer.score`."""
        self._orders.give(ScoreOrder(list(samples), tokens_per_forward))
        return self._training.score(samples, tokens_per_forward=tokens_per_forward)

    def weights(self, model: str) -> bytes:
        """See `Trainer.weights`: gathered in this process, tensor by tensor."""
        self._orders.give(WeightsOrder(model))
        return self._training.weights(model)

    def save(self, blobs: BlobSink, *, batch: int, version: int) -> Saved:
        """See `Trainer.save`: each process stores its part, and this one the manifest."""
        self._orders.give(SaveShard())
        saved = self._training.save(blobs, batch=batch, version=version)
        for rank, shard in enumerate(saved.shards):
            if not blobs.has(shard):
                raise BlobMissing(
                    f"process {rank} of the learner stored its part of a checkpoint where this process does not find it. All "
                    "processes need the same place for blobs (storage.blobs, or a home on a shared disk)"
                )
        return saved

    def restore(self, checkpoint: Checkpoint) -> None:
        """See `Trainer.restore`: each process reads the parts that it needs."""
        self._orders.give(RestoreOrder(checkpoint.ref))
        _require_all(self._ranks, checkpoint.ref, able=True)
        self._training.restore(checkpoint)


class MakeLeading:
    """Makes the leader's trainer; implements `learner.training.MakeTrainer`."""

    def __init__(self, orders: Orders, ranks: DistributedRank) -> None:
        self._orders = orders
        self._ranks = ranks

    def __call__(
        self,
        folder: Path,
        base: BlobRef,
        *,
        blobs: BlobStore,
        settings: LearnerSettings,
        stop: Event | None = None,
    ) -> LeaderTraining:
        """Make the trainer in all processes, before its first update."""
        self._orders.give(MakeOrder(base, settings))
        training = Training(folder, base, blobs=blobs, settings=settings, stop=stop, ranks=self._ranks)
        return LeaderTraining(training, self._orders, self._ranks)


def _to_plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"an order cannot hold a {type(value).__name__}")


def _from_plain(kind: type, value: Any) -> Any:
    if issubclass(kind, BaseModel):
        return kind.model_validate(value, context=RECORDED)
    raise TypeError(f"an order cannot hold a {kind.__name__}")
