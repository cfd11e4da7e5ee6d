"""A learner that starts from a kept state of its fold: the same learner, however long the history before it."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.watched_reads import watch_reads
from hindcast.core.settings.changes import decode_settings
from hindcast.events.catalogue import BlobReleased, CheckpointSaved, SnapshotSaved, UpdateApplied
from hindcast.learner.buffer.snapshots import LEARNER as KIND
from hindcast.learner.buffer.snapshots import FoldedLog
from hindcast.learner.retention import KEEP_SNAPSHOTS
from hindcast.learner.verify.verify import verify
from stories.training_story import (
    LEARNER,
    Bench,
    bench,
    copy_of,
    events_of,
    folded,
    informative,
    learn,
    tell,
    what_was_learned,
)

pytestmark = pytest.mark.torch

SETTINGS = decode_settings(
    {
        "run": {"seed": 3},
        "curriculum": {"group_size": 4, "max_attempts": 1},
        "learner": {**LEARNER, "keep_checkpoints": 2},
        "storage": {"snapshot_events": 20},
    }
)
BATCHES = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A run of four batches with snapshots, and groups for another two batches after them."""
    folder = tmp_path_factory.mktemp("trained")

    async def train() -> Bench:
        made = await bench(folder, batches=1, settings=SETTINGS)
        for batch in range(1, BATCHES + 1):
            assert (await learn(made, until=2 * batch)).batches == batch
            if batch < BATCHES:
                await tell(made.log, made.story.group(*informative(version=batch)))
                await tell(made.log, made.story.group(*informative(version=batch)))
        for _ in range(4):
            await tell(made.log, made.story.group(*informative(version=BATCHES)))
        return made

    return asyncio.run(train())


async def facts_of(made: Bench, *types: type[Any]) -> list[Any]:
    return [r.fact for r in await events_of(made.log) if isinstance(r.fact, types)]


async def test_a_start_reads_only_what_follows_the_snapshot_and_trains_as_one_that_reads_everything(
    trained: Bench, tmp_path: Path
) -> None:
    fast, slow = await copy_of(trained, tmp_path / "fast"), await copy_of(trained, tmp_path / "slow")
    for saved in await facts_of(slow, SnapshotSaved):
        slow.blobs.release(saved.blob)
    newest = (await facts_of(fast, SnapshotSaved))[-1]
    reads, all_reads = watch_reads(fast.log), watch_reads(slow.log)
    reports = [await learn(made, until=2 * BATCHES + 2) for made in (fast, slow)]
    assert reports[0] == reports[1]
    assert reports[0].recomputed == 0
    assert min(reads) == newest.position
    assert min(all_reads) == 0
    one, other = [what_was_learned(await events_of(made.log)) for made in (fast, slow)]
    assert one == other
    assert (await verify(fast.log, fast.blobs, policy=fast.policy)).identical


async def test_the_kept_state_is_the_fold_of_the_log_up_to_its_position(trained: Bench) -> None:
    saved = (await facts_of(trained, SnapshotSaved))[-1]
    kept = KIND.decode(trained.blobs.get(saved.blob))
    events = await events_of(trained.log)
    partly = type(trained.log)(trained.log.run)
    partly.events.extend(trained.log.events[: saved.position])
    assert KIND.encode(FoldedLog(kept.state, {})) == KIND.encode(FoldedLog(await folded(partly), {}))
    assert saved.position_digest == events[saved.position - 1].digest
    assert saved.log_digest == kept.state.digest.value
    last = {r.envelope.incarnation: r.position for r in events[: saved.position]}
    assert {name: link.position for name, link in kept.links.items()} == last


async def test_old_snapshots_are_let_go_of_and_the_newest_stay(trained: Bench) -> None:
    saved = await facts_of(trained, SnapshotSaved)
    released = {fact.blob for fact in await facts_of(trained, BlobReleased)}
    assert len(saved) > KEEP_SNAPSHOTS
    for fact in saved[:-KEEP_SNAPSHOTS]:
        assert fact.blob in released
        assert not trained.blobs.has(fact.blob)
    for fact in saved[-KEEP_SNAPSHOTS:]:
        assert fact.blob not in released
        assert trained.blobs.has(fact.blob)


async def test_a_damaged_snapshot_is_passed_over_for_the_one_before(trained: Bench, tmp_path: Path) -> None:
    made = await copy_of(trained, tmp_path / "blobs")
    *_, before, newest = await facts_of(made, SnapshotSaved)
    path = made.blobs.path(newest.blob)
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    reads = watch_reads(made.log)
    with capture_logs() as logs:
        report = await learn(made, until=2 * BATCHES + 1)
    assert min(reads) == before.position
    assert [entry["position"] for entry in logs if "is skipped" in entry["event"]] == [newest.position]
    assert report.recomputed == 0
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical


@pytest.mark.parametrize("gone", [1, 2])
async def test_without_a_readable_checkpoint_after_it_a_snapshot_does_not_serve(
    trained: Bench, tmp_path: Path, gone: int
) -> None:
    """One gone: an older snapshot and checkpoint, and the updates since are computed again. Both: everything is."""
    made = await copy_of(trained, tmp_path / "blobs")
    for saved in (await facts_of(made, CheckpointSaved))[-gone:]:
        shutil.rmtree(made.blobs.path(saved.blob).parent)
    report = await learn(made, until=2 * BATCHES + 1)
    assert report.recomputed == (2 if gone == 1 else 2 * BATCHES)
    assert len(await facts_of(made, UpdateApplied)) == 2 * BATCHES + 1
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
