"""How processes deal out passes and follow their leader, without starting any."""

from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hindcast.core.errors import CheckpointCorrupt, DiskFull
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.envelope import BlobRef
from hindcast.learner.distributed import leader as leader_module
from hindcast.learner.distributed.leader import (
    LeaderTraining,
    MakeOrder,
    Orders,
    RestoreOrder,
    StepOrder,
    follow,
)
from hindcast.learner.distributed.ranks import DistributedRank, EmulatedRanks
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import Checkpoint, Counters, save_checkpoint

pytestmark = pytest.mark.torch


class Told(DistributedRank):
    """A place among so many, without a process group: what the others have to say is known beforehand."""

    def __init__(self, size: int, rank: int, others: NDArray[np.float64] | None) -> None:
        self.rank, self.size, self._others = rank, size, others

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values if self._others is None else values + self._others


def one_of(size: int, *, rank: int, others: NDArray[np.float64] | None = None) -> DistributedRank:
    return Told(size, rank, others)


class Store:
    """Of orders: nobody hears them."""

    def set(self, _key: str, _value: str) -> None:
        pass


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
def test_every_pass_counts_once_and_all_processes_take_equally_many(count: int) -> None:
    """Also where nothing in a mini-batch has a part in the loss: then there is no pass."""
    passes = list(range(count))
    dealt = [list(chain.from_iterable(one_of(3, rank=rank).rounds(passes))) for rank in range(3)]
    assert len({len(own) for own in dealt}) == 1
    assert sorted(one for own in dealt for one, counts in own if counts) == passes
    alone = list(chain.from_iterable(EmulatedRanks(3).rounds(passes)))
    assert [alone[rank::3] for rank in range(3)] == dealt


def test_a_follower_goes_on_after_a_checkpoint_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader finds the same and takes an older one or the base weights: its next order has to be heard."""
    done: list[str] = []

    class Refusing:
        def __init__(self, *_: Any, **__: Any) -> None:
            done.append("made")

        def restore(self, *_: Any) -> None:
            raise CheckpointCorrupt("it does not fit the model")

        def step(self, index: int) -> None:
            done.append(f"step {index}")

    monkeypatch.setattr(leader_module, "Training", Refusing)
    blobs = BlobStore(tmp_path)
    saved = save_checkpoint(blobs, {}, Counters(update=1, batch=0, version=1, state="0" * 64))
    make = MakeOrder(BlobRef(sha256="0" * 64, size=1), LearnerSettings())
    orders = iter([make, RestoreOrder(saved), make, StepOrder(0), None])
    heard: Any = SimpleNamespace(take=lambda: next(orders))
    follow(heard, tmp_path, blobs=blobs, ranks=one_of(2, rank=1))
    assert done == ["made", "made", "step 0"]


def test_a_checkpoint_that_one_process_cannot_read_is_taken_over_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that went on alone would wait for the others' collectives, or compute from another state than they do."""

    class Untouched:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def restore(self, _checkpoint: Any) -> None:
            raise AssertionError("not all of them can read it")

    monkeypatch.setattr(leader_module, "Training", Untouched)
    gone = BlobRef(sha256="1" * 64, size=9)
    orders = iter([MakeOrder(gone, LearnerSettings()), RestoreOrder(gone), None])
    heard: Any = SimpleNamespace(take=lambda: next(orders))
    follow(heard, tmp_path, blobs=BlobStore(tmp_path), ranks=one_of(2, rank=1))
    ranks = one_of(2, rank=0, others=np.array([0.0, 1.0]))
    leader = LeaderTraining(Untouched(), Orders(Store()), ranks)  # type: ignore[arg-type]
    monkeypatch.setattr(leader_module.dist, "broadcast", lambda *_, **__: None)
    with pytest.raises(CheckpointCorrupt, match=r"cannot be read by process 1 of the learner.*storage.blobs"):
        leader.restore(Checkpoint(gone, {}, Counters(update=1, batch=0, version=1, state="0" * 64)))


def test_where_one_process_has_no_room_none_of_them_has_stored_its_part() -> None:
    """Asked again, all of them put theirs again: one that believed it was done would not take part."""
    ours = BlobRef(sha256="ab" * 32, size=2**40 + 1)
    theirs = np.zeros((2, 33))
    theirs[1] = [7, *bytes.fromhex("cd" * 32)]
    assert one_of(2, rank=0, others=theirs).store_parts(lambda: ours) == (ours, BlobRef("cd" * 32, 7))
    with pytest.raises(DiskFull, match="process 1 of the learner has no room"):
        one_of(2, rank=0, others=np.zeros((2, 33))).store_parts(lambda: ours)

    def full() -> BlobRef:
        raise DiskFull("no room here")

    with pytest.raises(DiskFull, match="no room here"):
        one_of(2, rank=0, others=theirs).store_parts(full)
