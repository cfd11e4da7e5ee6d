"""Updates that record no digest of weights and optimizer state: resumed, verified and audited like the others."""

from pathlib import Path

import pytest

from hindcast.core.errors import ReplayDiverged
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.core.settings.section import RECORDED
from hindcast.events.catalogue import CheckpointSaved, UpdateApplied
from hindcast.events.envelope import BlobRef
from hindcast.learner.retention import checkpoint_interval, digest_interval
from hindcast.learner.verify.verify import verify
from hindcast.storage.audit.audit import audit
from stories.forging import all_of, forge, with_field
from stories.learner_story import facts_of
from stories.training_story import Bench, bench, copy_of, events_of, learn, settings_with, what_was_learned

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("size", "digests", "checkpoints"),
    [(10_000_000, 1, 1), (2_000_000_000, 5, 5), (28_000_000_000, 70, 10)],
    ids=["2.5M", ".5B", "7B"],
)
def test_intervals_follow_from_the_size_of_the_model(size: int, digests: int, checkpoints: int) -> None:
    learner, base = LearnerSettings(), BlobRef("ab" * 32, size)
    assert digest_interval(learner, base, whole=True) == digests
    assert digest_interval(learner, base, whole=False) == 1
    assert checkpoint_interval(learner, base_bytes=base.size) == checkpoints
    assert checkpoint_interval(LearnerSettings(lora_rank=8), base_bytes=base.size) == 1
    chosen = LearnerSettings(digest_every=3, checkpoint_every=2)
    assert (digest_interval(chosen, base, whole=True), checkpoint_interval(chosen, base_bytes=base.size)) == (
        3,
        2,
    )


def test_runs_recorded_before_have_a_digest_at_every_update() -> None:
    recorded = Settings.model_validate({"learner": {"algorithm": "grpo"}}, context=RECORDED).learner
    assert (recorded.digest_every, recorded.checkpoint_every) == (1, 1)


async def trained(folder: Path) -> Bench:
    return await bench(folder, settings=settings_with(digest_every=4, checkpoint_every=1, keep_checkpoints=9))


async def test_a_resumed_run_records_digests_at_the_same_updates_and_verifies(tmp_path: Path) -> None:
    fresh = await trained(tmp_path / "fresh")
    whole = await copy_of(fresh, tmp_path / "whole")
    await learn(whole, until=6)
    for until in (1, 3, 5, 6):  # inside a batch, too: the first of its updates is computed again
        await learn(fresh, until=until)
    assert what_was_learned(await events_of(fresh.log)) == what_was_learned(await events_of(whole.log))
    updates = await facts_of(fresh, UpdateApplied)
    assert [bool(one.after) for one in updates] == [False, False, False, True, False, False]
    assert [bool(one.before) for one in updates] == [True, False, False, False, True, False]
    assert updates[4].before == updates[3].after
    saved = await facts_of(fresh, CheckpointSaved)
    assert all(one.state for one in saved), "a checkpoint always has its digest"
    assert saved[1].state == updates[3].after
    report = await verify(fresh.log, fresh.blobs, policy=fresh.policy)
    assert (report.identical, report.updates, report.digests, report.checkpoints) == (True, 6, 1, 3)
    assert (await verify(fresh.log, fresh.blobs, policy=fresh.policy, tolerance=1e-6)).within_tolerance
    assert not (await audit(fresh.log, fresh.blobs, pages=False)).defects


async def test_every_number_of_an_update_without_a_digest_is_compared(tmp_path: Path) -> None:
    made = await trained(tmp_path)
    await learn(made, until=5)
    altered = (await all_of(made, UpdateApplied))[4]
    assert isinstance(altered.fact, UpdateApplied)
    norm = altered.fact.metrics["gradient_norm"]
    forge(
        made.log,
        altered.position,
        with_field(metrics=altered.fact.metrics | {"gradient_norm": norm * (1 + 1e-15) + 1e-15}),
    )
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.first_divergence is not None
    assert (report.first_divergence.position, report.first_divergence.what) == (altered.position, "loss")
    with pytest.raises(ReplayDiverged, match="gradient_norm"):
        await learn(made, until=6)
