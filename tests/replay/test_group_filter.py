"""Groups that agree, trained on without the filter of groups: planned with advantage 0, verified to the bit, audited."""

from pathlib import Path

import pytest

from hindcast.events.catalogue import BatchPlanned, SamplesSwept, UpdateApplied, WeightsPublished
from hindcast.learner.verify.verify import verify
from stories.forged_log import audited
from stories.training_story import Bench, Member, bench, events_of, informative, learn, settings_with, tell

pytestmark = pytest.mark.torch

AGREED = (Member(1.0, 1), Member(1.0, 2))


async def trained(folder: Path, *groups: tuple[Member, ...], kl_coefficient: float = 0.0) -> Bench:
    """A run without the filter whose every batch is one group."""
    settings = settings_with(
        group_batch=1,
        options={"group_filter": False},
        minibatches=1,
        epochs=1,
        warmup_updates=0,
        kl_coefficient=kl_coefficient,
    )
    made = await bench(folder, batches=0, settings=settings)
    for members in groups:
        await tell(made.log, made.story.group(*members))
        await learn(
            made, until=sum(isinstance(one.fact, UpdateApplied) for one in await events_of(made.log)) + 1
        )
    return made


async def weights_of(made: Bench) -> list[str]:
    """Digests of the published weights, by version."""
    return [
        one.fact.weights.sha256 for one in await events_of(made.log) if isinstance(one.fact, WeightsPublished)
    ]


async def test_a_batch_of_groups_that_agree_has_no_gradient_and_moves_the_weights_by_momentum_alone(
    tmp_path: Path,
) -> None:
    made = await trained(tmp_path, AGREED, informative(version=1), AGREED)
    facts = [recorded.fact for recorded in await events_of(made.log)]
    plans = [fact for fact in facts if isinstance(fact, BatchPlanned)]
    assert [any(one.advantage for one in plan.episodes) for plan in plans] == [False, True, False]
    assert not any(isinstance(fact, SamplesSwept) for fact in facts)
    updates = [fact for fact in facts if isinstance(fact, UpdateApplied)]
    assert [update.metrics["gradient_norm"] > 0 for update in updates] == [False, True, False]
    start, first, second, third = await weights_of(made)
    assert start == first, "AdamW has no moments yet"
    assert len({first, second, third}) == 3
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert (await audited(made)).clean


async def test_the_kl_penalty_holds_for_groups_that_agree(tmp_path: Path) -> None:
    made = await trained(tmp_path, informative(), AGREED, kl_coefficient=0.1)
    updates = [one.fact for one in await events_of(made.log) if isinstance(one.fact, UpdateApplied)]
    assert updates[-1].metrics["policy_loss"] == 0
    assert updates[-1].metrics["gradient_norm"] > 0
