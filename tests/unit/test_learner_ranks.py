"""How processes deal out passes and follow their leader, without starting any."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import CheckpointCorrupt
from core.settings import LearnerSettings
from events.envelope import BlobRef
from learner import leading
from learner.leading import End, Make, Restore, Step, follow
from learner.ranks import Together
from storage.blobs import BlobStore
from storage.checkpoints import Counters, encode_checkpoint


def one_of(size: int, *, rank: int) -> Together:
    """A place among so many, without a process group: dealing out needs none."""
    ranks = object.__new__(Together)
    ranks.rank, ranks.size = rank, size
    return ranks


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
def test_every_pass_counts_once_and_all_processes_take_equally_many(count: int) -> None:
    """Also where nothing in a mini-batch has a part in the loss: then there is no pass."""
    passes = list(range(count))
    dealt = [one_of(3, rank=rank).own(passes) for rank in range(3)]
    assert len({len(own) for own in dealt}) == 1
    assert sorted(one for own in dealt for one, counts in own if counts) == passes


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

    monkeypatch.setattr(leading, "Training", Refusing)
    counters = Counters(update=1, batch=0, version=1, state="0" * 64, beside={})
    make = Make(BlobRef(sha256="0" * 64, size=1), LearnerSettings())
    orders = iter([make, Restore(encode_checkpoint({}, counters)), make, Step(0), End()])
    heard: Any = SimpleNamespace(take=lambda: next(orders))
    follow(heard, tmp_path, blobs=BlobStore(tmp_path), ranks=one_of(2, rank=1))
    assert done == ["made", "made", "step 0"]
