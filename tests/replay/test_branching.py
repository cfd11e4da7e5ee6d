"""Advantages of steps from continuations: by hand, in the plan of a real learner, verified and audited."""

from pathlib import Path
from typing import Any

import pytest

from hindcast.core.domain.arrays import unpack_positions
from hindcast.core.rl.advantages import group_advantages
from hindcast.events.catalogue import BatchPlanned, BranchPoint, StepTaken, UpdateApplied
from hindcast.learner.algorithms.branching import segment_advantages
from hindcast.learner.verify.verify import verify
from stories.forged_log import audited, forge, positions
from stories.training_story import Bench, Member, bench, events_of, learn, settings_with, tell

pytestmark = pytest.mark.torch

DEVIATION = 0.5
"""Of as many successes as failures."""


def tree(group: str) -> tuple[Member, ...]:
    """The example of docs/planners/branching.md: rewards 0, 1, 1, 0; continued from step 1 with 1, 1 and from step 2 with 0, 0."""
    one, two = (BranchPoint(episode=f"ep_{group}_0", step=step) for step in (1, 2))
    return (
        *(Member(0.0, 4), Member(1.0, 2), Member(1.0, 3), Member(0.0, 1)),
        *(Member(1.0, 3, branch=one), Member(1.0, 2, branch=one)),
        *(Member(0.0, 5, branch=two), Member(0.0, 3, branch=two)),
    )


async def trained(folder: Path, *, batches: int, **learner: Any) -> Bench:
    """A run of `branching` whose every batch is one tree and one update."""
    options = {"group_batch": 1, "group_epsilon": 1e-12, **learner.pop("options", {})}
    settings = settings_with(
        algorithm="branching", minibatches=1, epochs=1, warmup_updates=0, options=options, **learner
    )
    made = await bench(folder, batches=0, settings=settings)
    for number in range(batches):
        await tell(made.log, made.story.group(*tree(f"t{number}"), name=f"t{number}"))
    await learn(made, until=batches)
    return made


def test_a_step_has_the_gain_in_value_of_its_segment() -> None:
    # VinePPO: continuations from every step
    assert segment_advantages({0: 0.5, 1: 0.75, 2: 0.25}, 1.0, steps=[0, 1, 2]) == [0.25, -0.5, 0.75]
    # SPO: steps without continuations share what their segment gained
    assert segment_advantages({0: 0.5, 2: 0.25}, 1.0, steps=[0, 1, 2, 3]) == [-0.25, -0.25, 0.75, 0.75]
    # a group's: no continuations
    assert segment_advantages({0: 0.5}, 0.0, steps=[0, 1]) == [-0.5, -0.5]
    # a continuation from step 3, whose step 4 had no tokens
    assert segment_advantages({3: 0.25}, 1.0, steps=[3, 5]) == [0.75, 0.75]


async def test_the_plan_holds_the_advantages_of_the_example_in_the_docs(tmp_path: Path) -> None:
    made = await trained(tmp_path, batches=1)
    (planned,) = [one.fact for one in await events_of(made.log) if isinstance(one.fact, BatchPlanned)]
    found = {int(one.episode.rpartition("_")[2]): one for one in planned.episodes}
    by_hand = {
        0: [1 / 6, -2 / 3, 0, 0],
        1: [1 / 2] * 2,
        2: [1 / 2] * 3,
        3: [-1 / 2],
        4: [1 / 3] * 2,
        5: [1 / 3],
        6: [0] * 3,
        7: [0],
    }
    for member, due in by_hand.items():
        given = found[member].step_advantages
        assert given == pytest.approx([one / DEVIATION for one in due]), member
    whole = [found[member].advantage for member in range(8)]
    assert whole == pytest.approx(
        [one / DEVIATION for one in (-1 / 2, 1 / 2, 1 / 2, -1 / 2, 1 / 3, 1 / 3, 0, 0)]
    )


async def test_what_a_continuation_repeats_is_not_trained_on_again(tmp_path: Path) -> None:
    made = await trained(tmp_path, batches=1)
    events = await events_of(made.log)
    (planned,) = [one.fact for one in events if isinstance(one.fact, BatchPlanned)]
    steps = {one.position: one.fact for one in events if isinstance(one.fact, StepTaken)}
    trained_on = {(steps[at].episode, steps[at].index) for at in unpack_positions(planned.positions).tolist()}
    assert {index for name, index in trained_on if name == "ep_t0_4"} == {1, 2}
    assert {index for name, index in trained_on if name == "ep_t0_6"} == {2, 3, 4}
    (update,) = [one.fact for one in events if isinstance(one.fact, UpdateApplied)]
    assert update.metrics["samples"] == 17


async def test_a_group_without_continuations_has_the_advantages_of_its_group(tmp_path: Path) -> None:
    settings = settings_with(algorithm="branching", minibatches=1, epochs=1, options={"group_batch": 1})
    made = await bench(tmp_path, batches=1, settings=settings)
    await learn(made, until=1)
    planned = next(one.fact for one in await events_of(made.log) if isinstance(one.fact, BatchPlanned))
    due = group_advantages([one.reward for one in planned.episodes])
    for one, advantage in zip(planned.episodes, due, strict=True):
        assert one.step_advantages == (advantage,) * one.samples


async def test_three_updates_verify_bit_for_bit_and_audit(tmp_path: Path) -> None:
    made = await trained(tmp_path, batches=3)
    updates = [one.fact for one in await events_of(made.log) if isinstance(one.fact, UpdateApplied)]
    assert len(updates) == 3
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.identical, report.first_divergence
    assert (await audited(made)).clean


async def test_verify_finds_an_advantage_that_does_not_follow_from_the_tree(tmp_path: Path) -> None:
    made = await trained(tmp_path, batches=1)

    def change(event: dict[str, Any]) -> None:
        event["payload"]["episodes"][0]["step_advantages"][1] = 0.5

    forge(made.log, positions(made.log, "batch.planned")[0], change)
    assert not (await verify(made.log, made.blobs, policy=made.policy)).identical


async def test_the_audit_finds_a_step_without_an_advantage(tmp_path: Path) -> None:
    made = await trained(tmp_path, batches=1)

    def change(event: dict[str, Any]) -> None:
        event["payload"]["episodes"][0]["step_advantages"].pop()

    forge(made.log, positions(made.log, "batch.planned")[0], change)
    found = {one.what for one in (await audited(made)).defects}
    assert "advantages of the steps of ep_t0_0" in found
