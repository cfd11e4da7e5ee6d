"""Two processes that compute each update together (FSDP2 over gloo), beside one that computes it alone."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load

from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BlobReleased, CheckpointSaved, UpdateApplied, WeightsPublished
from hindcast.learner.numerics import configure
from hindcast.learner.verify.comparison import weights_distance
from hindcast.learner.verify.verify import verify
from hindcast.storage.checkpoints import load_checkpoint
from stories.ranks_story import leading, learn_with, share_blobs
from stories.training_story import Bench, bench, events_of, learn, settings_with

pytestmark = pytest.mark.torch

TOLERANCE = 1e-4
"""Of numbers, as `learner.verify.comparison` measures them, and of the weights' distance."""
TOGETHER = LearnerSettings(processes=2, exact_ranks=False)
FORMS: dict[str, dict[str, Any]] = {"whole": {"gradient_checkpointing": True}, "adapter": {"lora_rank": 4}}


async def what_came_of(made: Bench) -> tuple[list[UpdateApplied], list[bytes]]:
    """Updates, and published weights."""
    facts = [recorded.fact for recorded in await events_of(made.log)]
    weights = [made.blobs.get(fact.weights) for fact in facts if isinstance(fact, WeightsPublished)]
    return [fact for fact in facts if isinstance(fact, UpdateApplied)], weights


async def test_two_processes_compute_the_updates_of_one(tmp_path: Path) -> None:
    """Whole weights, stopped in the middle of a batch and gone on with in processes started anew; and an adapter."""
    configure(1)
    pairs = []
    for name, learner in FORMS.items():
        settings = settings_with(**learner, kl_coefficient=0.1, keep_checkpoints=1)
        alone = await bench(tmp_path / name / "alone", batches=3, settings=settings)
        share_blobs(tmp_path / name / "together", tmp_path / "blobs")
        together = await bench(tmp_path / name / "together", batches=3, settings=settings)
        await learn(alone, until=4)
        pairs.append((alone, together))
    (_, whole), (_, adapter) = pairs
    with leading(whole, TOGETHER) as make:
        await learn_with(make, whole, until=3)
        await learn_with(make, adapter, until=4)
    with leading(whole, TOGETHER) as make:
        resumed = await learn_with(make, whole, until=4)
    assert resumed.recomputed == 1  # to the very bit, else it is refused
    await assert_in_shards(whole)
    await assert_in_shards(adapter)
    for alone, together in pairs:
        (updates, weights), (again, others) = await what_came_of(alone), await what_came_of(together)
        assert [one.inputs for one in updates] == [one.inputs for one in again]
        for ours, theirs in zip(weights, others, strict=True):
            assert weights_distance(ours, theirs) < TOLERANCE
        report = await verify(together.log, together.blobs, policy=together.policy, tolerance=TOLERANCE)
        assert report.within_tolerance
        assert report.updates == 4
        alone_now = await learn(together, until=5)  # another number of processes reads what two wrote
        assert (alone_now.updates, alone_now.recomputed) == (5, 0)


async def assert_in_shards(made: Bench) -> None:
    """The newest checkpoint is in as many parts as processes, none of them whole; of the one before, no part is left."""
    facts = [recorded.fact for recorded in await events_of(made.log)]
    *earlier, newest = [fact for fact in facts if isinstance(fact, CheckpointSaved)]
    held = load_checkpoint(made.blobs, newest.blob).tensors
    size = sum(value.nbytes for value in held.values())
    assert len(newest.shards) == 2
    for part in newest.parts:
        assert sum(value.nbytes for value in load(made.blobs.get(part)).values()) < 0.6 * size
    released = [fact.blob for fact in facts if isinstance(fact, BlobReleased)]
    assert earlier
    for saved in earlier:
        assert set(saved.parts) <= set(released)
        assert not any(map(made.blobs.has, saved.parts))
    assert all(map(made.blobs.has, newest.parts))


@pytest.mark.slow
def test_processes_that_torchrun_starts_again_meet_again(tmp_path: Path) -> None:
    """Its store still holds the addresses of those that ended."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2"]
    torchrun += ["--max-restarts", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    script = Path(__file__).parents[1] / "processes" / "meeting_process.py"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*torchrun, str(script), str(tmp_path)], env=environment, timeout=240, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["6.0", "6.0"]
