"""The learner's benchmark compares like with like: both loops end with the same weights."""

from pathlib import Path

from tiny_policy import write_tiny_policy

from app.bench.engine_calls import recorded_episodes
from app.bench.learner import Bare, Ours, made_up_batch, prepare
from app.configuration import resolve
from core.models.policy import weights_of


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
