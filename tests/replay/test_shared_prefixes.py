"""A learner that computes common beginnings once: the same updates within rounding, and verified to the bit."""

from pathlib import Path
from typing import cast

import pytest

from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import UpdateApplied
from hindcast.learner import forward_passes
from hindcast.learner.verify.verify import verify
from stories.forging import all_of
from stories.training_story import bench, learn, settings_with

pytestmark = pytest.mark.torch

PAGE = tuple(range(5, 45))
"""Tokens that every prompt begins with."""


async def updates_with(folder: Path, *, shared: bool, precision: str = "float32") -> list[UpdateApplied]:
    made = await bench(folder, settings=settings_with(shared_prefixes=shared, precision=precision), page=PAGE)
    await learn(made, until=4)
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.identical
    assert report.updates == 4
    return [cast(UpdateApplied, one.fact) for one in await all_of(made, UpdateApplied)]


async def test_updates_are_the_same_within_rounding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    make = forward_passes.token_trees

    def counted(*given: object, **more: object) -> object:
        trees = make(*given, **more)  # type: ignore[arg-type]
        rows.extend(len(tree.members) for tree in trees)
        return trees

    monkeypatch.setattr(forward_passes, "token_trees", counted)
    alone = await updates_with(tmp_path / "alone", shared=False)
    assert not rows
    shared = await updates_with(tmp_path / "shared", shared=True)
    assert max(rows) > 1
    for ours, theirs in zip(shared, alone, strict=True):
        assert ours.inputs == theirs.inputs
        assert ours.metrics == pytest.approx(theirs.metrics, rel=1e-3, abs=1e-4)


async def test_bf16_verifies_to_the_bit(tmp_path: Path) -> None:
    assert len(await updates_with(tmp_path, shared=True, precision="bf16")) == 4


def test_runs_recorded_without_the_setting_compute_each_sample_alone() -> None:
    assert Settings().learner.shared_prefixes
    assert not decode_settings({"learner": {"algorithm": "grpo"}}).learner.shared_prefixes
