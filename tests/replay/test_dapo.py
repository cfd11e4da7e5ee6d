"""DAPO with the real planner and trainer: length terms in the plan, episodes that were cut off, verified and audited."""

from pathlib import Path
from typing import Any

import pytest

from hindcast.core.rl.advantages import group_advantages
from hindcast.events.catalogue import (
    BatchPlanned,
    SamplesSwept,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.envelope import Fact
from hindcast.learner.verify.verify import verify
from stories.forged_log import audited, forge, positions
from stories.training_story import Bench, Member, bench, events_of, learn, settings_with, tell

pytestmark = pytest.mark.torch

LIMIT = 9
"""Steps at which an episode of the story is cut off."""


async def trained(folder: Path, *groups: tuple[Member, ...], until: int, **learner: Any) -> Bench:
    """A run of DAPO whose every batch is one group and one update."""
    options = {"group_batch": 1, **learner.pop("options", {})}
    settings = settings_with(
        algorithm="dapo", minibatches=1, epochs=1, warmup_updates=0, options=options, **learner
    )
    made = await bench(folder, batches=0, settings=settings)
    for members in groups:
        await tell(made.log, made.story.group(*members))
    await learn(made, until=until)
    return made


async def facts_of(made: Bench) -> list[Fact]:
    return [recorded.fact for recorded in await events_of(made.log)]


async def is_sound(made: Bench) -> None:
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert (await audited(made)).clean


async def test_the_length_of_an_episode_lowers_its_reward_and_does_not_make_groups_differ(
    tmp_path: Path,
) -> None:
    # the buffer is a third of 9 steps: the penalty of 8 steps is 2/3 of .6, that of 9 all of it
    agreed = (Member(1.0, 2), Member(1.0, LIMIT))
    differing = (Member(1.0, 8), Member(1.0, 2), Member(0.0, LIMIT), Member(0.0, 3))
    options = {"overlong_penalty": 0.6, "overlong_buffer": 1 / 3}
    made = await trained(tmp_path, agreed, differing, until=1, options=options)
    facts = await facts_of(made)
    assert [(fact.reason, len(fact.episodes)) for fact in facts if isinstance(fact, SamplesSwept)] == [
        ("agreed", 2)
    ]
    (planned,) = [fact for fact in facts if isinstance(fact, BatchPlanned)]
    assert [one.length_term for one in planned.episodes] == pytest.approx([-0.4, 0.0, -0.6, 0.0])
    assert [one.reward for one in planned.episodes] == [1.0, 1.0, 0.0, 0.0]
    rewards = [one.reward + one.length_term for one in planned.episodes]
    assert [one.advantage for one in planned.episodes] == group_advantages(rewards)
    await is_sound(made)


async def test_the_audit_reports_a_length_that_adds_to_a_reward(tmp_path: Path) -> None:
    made = await trained(tmp_path, (Member(1.0, 8), Member(0.0, 2)), until=1)

    def change(event: dict[str, Any]) -> None:
        event["payload"]["episodes"][0]["length_term"] = 0.25

    forge(made.log, positions(made.log, "batch.planned")[0], change)
    assert "length term of ep_group_0_0" in {one.what for one in (await audited(made)).defects}


async def test_episodes_that_were_cut_off_are_compared_and_not_trained_on(tmp_path: Path) -> None:
    members = (Member(1.0, 2), Member(0.0, LIMIT), Member(0.0, 3))
    made = await trained(
        tmp_path, members, until=1, options={"overlong_filter": True, "overlong_penalty": 0.0}
    )
    facts = await facts_of(made)
    (planned,) = [fact for fact in facts if isinstance(fact, BatchPlanned)]
    assert [one.advantage for one in planned.episodes] == group_advantages([1.0, 0.0, 0.0])
    (update,) = [fact for fact in facts if isinstance(fact, UpdateApplied)]
    assert update.metrics["samples"] == 5, "of 14 steps 9 are left out"
    await is_sound(made)


async def test_a_batch_of_episodes_that_were_cut_off_is_skipped_with_its_reason(tmp_path: Path) -> None:
    cut_off = (Member(1.0, LIMIT), Member(0.0, LIMIT))
    made = await trained(
        tmp_path, cut_off, (Member(1.0, 1), Member(0.0, 2)), until=1, options={"overlong_filter": True}
    )
    facts = await facts_of(made)
    (skipped,) = [fact for fact in facts if isinstance(fact, UpdateSkipped)]
    assert skipped.reason == "the loss leaves out every episode of the mini-batch"
    assert [fact.update for fact in facts if isinstance(fact, UpdateApplied)] == [1]
    assert max(fact.version for fact in facts if isinstance(fact, WeightsPublished)) >= 1
    await is_sound(made)


async def test_rehearsed_successes_are_imitated_where_every_compared_episode_was_cut_off(
    tmp_path: Path,
) -> None:
    groups = ((Member(1.0, 1), Member(0.0, 2)), (Member(1.0, LIMIT), Member(0.0, LIMIT)))
    made = await trained(
        tmp_path,
        *groups,
        until=2,
        rehearsal_episodes=1,
        kl_coefficient=0.1,
        options={"overlong_filter": True},
    )
    *_, update = [fact for fact in await facts_of(made) if isinstance(fact, UpdateApplied)]
    assert (update.metrics["samples"], update.metrics["tokens"]) == (0, 0)
    assert update.metrics["rehearsal_loss"] > 0
    await is_sound(made)
