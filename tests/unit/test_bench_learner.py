"""The learner's benchmark compares like with like: both loops end with the same weights, and no peak is another's."""

from pathlib import Path

import numpy as np
import pytest

from bench.engine_calls import recorded_episodes
from bench.learner import Bare, Ours, made_up_batch, prepare
from bench.learner_ranks import CPU, WALL, compare_sums
from bench.learner_ways import MEMORY, RATE, Way, compare_ways
from bench.peaks import forget_peak, peak_mib
from fakes.tiny_policy import write_tiny_policy
from hindcast.app.settings.configuration import resolve
from hindcast.core.models.policy import weights_of
from hindcast.core.settings.schema import LearnerSettings

pytestmark = pytest.mark.torch


def test_the_bare_loop_trains_the_same_policy(tmp_path: Path) -> None:
    prepare(1)
    policy = write_tiny_policy(tmp_path / "tiny")
    settings = resolve(recipe="mgrpo", environment={}, folder=tmp_path).settings.learner
    work = made_up_batch(policy, [episode[:1] for episode in recorded_episodes(16)], settings)
    before = {name: value.clone() for name, value in Bare(policy, work).model.state_dict().items()}
    ours, bare = Ours(policy, work, blobs=tmp_path / "blobs"), Bare(policy, work)
    assert ours.train() > 0
    assert bare.train() > 0
    trained = weights_of(ours.training._policy.model)
    apart = moved = 0.0
    for name, value in weights_of(bare.model).items():
        apart += float((value - trained[name]).square().sum())
        moved += float((value - before[name]).square().sum())
    assert moved > 1e-9
    assert apart < 1e-3 * moved  # AdamW makes whole steps of gradients that are nothing but rounding


@pytest.mark.slow
async def test_the_learner_is_measured_beside_itself_in_processes_of_their_own(tmp_path: Path) -> None:
    policy, settings = write_tiny_policy(tmp_path / "tiny"), LearnerSettings()
    changed = settings.model_copy(update={"gradient_checkpointing": True})
    said: list[str] = []
    rate, memory = await compare_ways(
        Way(policy, changed, 8),
        Way(policy, settings, 8),
        words="checkpointing",
        repeats=1,
        said=said.append,
    )
    assert (rate.figure, memory.figure) == (RATE, MEMORY)
    assert min(rate.ours, rate.peer) > 0
    assert 0 < memory.ours < memory.peer, "a layer keeps its input alone"
    assert [line.split(":")[0] for line in said] == ["checkpointing"]


@pytest.mark.slow
def test_sums_in_rank_order_are_timed_beside_bare_collectives(tmp_path: Path) -> None:
    policy = write_tiny_policy(tmp_path / "tiny")
    wall, cpu = compare_sums(Way(policy, LearnerSettings(processes=2), 8), repeats=1)
    assert (wall.figure, cpu.figure) == (WALL, CPU)
    assert min(wall.ours, wall.peer, cpu.ours, cpu.peer) > 0


def test_a_peak_that_is_forgotten_counts_no_more() -> None:
    held = np.ones(64 << 20, dtype=np.uint8)
    with_it = peak_mib()
    del held
    forget_peak()
    assert peak_mib() < with_it - 32
