"""What changes where cloning ends: a new optimizer, batches cut otherwise, a critic that begins with the cloned policy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from hindcast.events.catalogue import BatchPlanned, UpdateApplied, WeightsPublished
from hindcast.learner.training import learning_rate
from hindcast.learner.verify.verify import verify
from stories.learner_story import Killed, Watched, die, facts_of
from stories.training_story import Bench, Member, bench, copy_of, informative, learn, settings_with, tell

pytestmark = pytest.mark.torch

CLONED = {
    "cloning_updates": 2,
    "cloning_batch": 4,
    "cloning_rate": 1e-3,
    "warmup_updates": 2,
    "minibatches": 2,
}
SHOWN = Member(1.0, 2, origin="demonstration")


async def demonstrated(folder: Path, **learner: Any) -> Bench:
    """A log with four demonstrations, and episodes for two batches after them."""
    settings = settings_with(**{**CLONED, **learner})
    curriculum = settings.curriculum.model_copy(update={"demonstrations": 4})
    made = await bench(folder, batches=0, settings=settings.model_copy(update={"curriculum": curriculum}))
    for _ in range(4):
        await tell(made.log, made.story.group(SHOWN))
    for _ in range(4):
        await tell(made.log, made.story.group(*informative()))
    return made


async def updates_of(made: Bench) -> list[UpdateApplied]:
    return list(await facts_of(made, UpdateApplied))


def test_the_warm_up_counts_the_optimizers_steps() -> None:
    settings = settings_with(
        learning_rate=4e-3, warmup_updates=4, cloning_updates=10, cloning_rate=1e-3
    ).learner
    assert learning_rate(settings, 2, step=2) == pytest.approx(5e-4)
    assert learning_rate(settings, 11, step=11) == pytest.approx(4e-3)
    assert learning_rate(settings, 11, step=1) == pytest.approx(1e-3)


async def test_a_fresh_optimizer_has_no_moments_of_cloning(tmp_path: Path) -> None:
    kept = await demonstrated(tmp_path / "kept")
    await learn(kept, until=4)
    fresh = await demonstrated(tmp_path / "fresh", fresh_optimizer=True)
    await learn(fresh, until=4)
    ours, theirs = await updates_of(fresh), await updates_of(kept)
    assert [one.after for one in ours[:2]] == [one.after for one in theirs[:2]]
    assert ours[2].before == theirs[2].before
    assert ours[2].metrics["loss"] == theirs[2].metrics["loss"], "the gradient is the same, the step is not"
    assert ours[2].after != theirs[2].after
    rate = settings_with().learner.learning_rate
    assert [one.metrics["learning_rate"] for one in ours[2:]] == [rate / 2, rate]
    assert [one.metrics["learning_rate"] for one in theirs[2:]] == [rate, rate]
    assert (await verify(fresh.log, fresh.blobs, policy=fresh.policy)).identical


async def test_the_first_step_of_a_fresh_optimizer_is_its_rate_for_every_weight(tmp_path: Path) -> None:
    made = await demonstrated(
        tmp_path, fresh_optimizer=True, warmup_updates=0, minibatches=1, learning_rate=1e-3
    )
    await learn(made, until=3)
    published = {one.version: one for one in await facts_of(made, WeightsPublished)}
    before, after = (load(made.blobs.get(published[version].weights)) for version in (2, 3))
    moved = np.concatenate([np.abs(after[name] - before[name]).ravel() for name in before])
    moved = moved[moved > 0]
    # Adam's first step is rate * g / (|g| + epsilon): the rate itself wherever the gradient is far above epsilon
    assert np.median(moved) == pytest.approx(1e-3, rel=1e-2)
    assert moved.max() < 1.01e-3


async def test_a_learner_that_dies_anywhere_after_cloning_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    told = await demonstrated(tmp_path / "run", fresh_optimizer=True)
    whole = await copy_of(told, tmp_path / "whole")
    await learn(whole, until=6)
    for number in range(6, 14):
        again = await copy_of(told, tmp_path / str(number))
        with pytest.raises(Killed):
            await learn(again, until=6, log=Watched(again.log, number, after=die))
        await learn(again, until=6)
        assert [one.after for one in await updates_of(again)] == [
            one.after for one in await updates_of(whole)
        ]


@pytest.mark.parametrize(("own", "expected"), [(0, 2), (1, 1)])
async def test_cloning_is_cut_into_minibatches_of_its_own(tmp_path: Path, own: int, expected: int) -> None:
    made = await demonstrated(tmp_path, cloning_minibatches=own)
    await learn(made, until=4)
    cloned, *later = await facts_of(made, BatchPlanned)
    assert len(cloned.minibatches) // 4 == expected
    assert len(later[-1].minibatches) // 4 == 2


async def test_the_critic_begins_with_the_cloned_policy_and_its_head_has_its_own_rate(tmp_path: Path) -> None:
    phased = {
        "algorithm": "webrl",
        "phase_episodes": 4,
        "critic_epochs": 1,
        "minibatches": 1,
        "cloning_updates": 1,
    }
    found = {}
    for start in ("base", "policy"):
        made = await demonstrated(
            tmp_path / start, **phased, critic_from=start, critic_learning_rate=1e-6, critic_head_rate=1e-2
        )
        await learn(made, until=2)
        published = await facts_of(made, WeightsPublished)
        weights = {one.model: load(made.blobs.get(one.weights)) for one in published if one.version == 1}
        base = load(made.blobs.get(next(one.weights for one in published if one.version == 0)))
        found[start] = {
            "to_policy": distance(weights["critic"], weights["policy"]),
            "to_base": distance(weights["critic"], base),
        }
        head = np.abs(weights["critic"]["head.weight"])
        assert head.max() == pytest.approx(1e-2, rel=1e-3), "one step of the head's own rate, from zero"
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert found["base"]["to_base"] < 1e-4 < found["base"]["to_policy"]
    assert found["policy"]["to_policy"] < 1e-4 < found["policy"]["to_base"]


def distance(critic: dict[str, Any], policy: dict[str, Any]) -> float:
    """Largest difference of the critic's body to a policy's."""
    body = {
        name.removeprefix("backbone."): value
        for name, value in critic.items()
        if name.startswith("backbone.")
    }
    assert body
    own = {name.removeprefix("model."): value for name, value in policy.items()}
    return max(float(np.abs(value - own[name]).max()) for name, value in body.items())
