"""Runs that clone first and then learn from pairs, from their best, from their successes or from groups: planned from the log
alone, killed in the middle, verified to the bit, audited."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hindcast.core.domain.arrays import pack_floats, unpack_floats
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BatchPlanned, RecipeChanged, SamplesSwept, StepTaken, UpdateApplied
from hindcast.events.envelope import Fact, Record
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import Expectation
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.verify.verify import verify
from stories.forged_log import audited, forge, positions
from stories.learner_story import Killed, Watched, die
from stories.training_story import (
    RUN,
    Bench,
    Member,
    Told,
    bench,
    copy_of,
    events_of,
    folded,
    learn,
    settings_with,
    tell,
    what_was_learned,
)

pytestmark = pytest.mark.torch

CLONED = {"cloning_updates": 1, "cloning_batch": 4, "minibatches": 1, "kl_coefficient": 0}
SHOWN = Member(1.0, 2, version=-1, origin="demonstration")


def settings_of(algorithm: str, **learner: object) -> Settings:
    return settings_with(algorithm=algorithm, **{**CLONED, **learner})


async def run_of(folder: Path, settings: Settings, *, tasks: int = 4) -> Bench:
    """Demonstrations of so many tasks, then cloning, then a group of four at each task, half of it failures."""
    made = await bench(folder, batches=0, settings=settings)
    for seed in range(tasks):
        await tell(made.log, made.story.group(SHOWN, seed=seed))
    await learn(made, until=settings.learner.minibatches)
    for seed in range(tasks):
        await tell(made.log, group_at(made, seed))
    return made


def group_at(made: Bench, seed: int) -> list[Told]:
    return made.story.group(
        Member(1.0, 1, version=1), Member(0.0, 2, version=1), Member(0.0, 1, version=1), Member(1.0, 3, version=1),
        seed=seed,
    )  # fmt: skip


async def plans(made: Bench) -> list[BatchPlanned]:
    return [r.fact for r in await events_of(made.log) if isinstance(r.fact, BatchPlanned)]


async def swept(made: Bench) -> dict[str, int]:
    found: dict[str, int] = {}
    for recorded in await events_of(made.log):
        if isinstance(recorded.fact, SamplesSwept):
            found[recorded.fact.reason] = found.get(recorded.fact.reason, 0) + len(recorded.fact.episodes)
    return found


GROUPS = {"group_batch": 2, "minibatches": 2, "epochs": 2}
RECIPES = [
    ("dpo", {"pair_batch": 4, "minibatches": 2, "dpo_beta": 0.5}),
    ("filtered_bc", {"filter_episodes": 8, "minibatches": 2}),
    ("self_imitation", {"cloning_batch": 4, "cloning_epochs": 2}),
    ("grpo", {**GROUPS, "kl_coefficient": 0.01, "clip_high": 0.2}),
    ("dr_grpo", {**GROUPS, "options": {"episode_tokens": 20}}),
    ("gspo", {**GROUPS, "options": {"sequence": "episode"}}),
    ("cispo", {**GROUPS, "correction": "icepop"}),
    ("dapo", {**GROUPS, "options": {"overlong_buffer": 1.0}}),
]


@pytest.mark.parametrize(("algorithm", "learner"), RECIPES, ids=[name for name, _ in RECIPES])
async def test_a_run_killed_in_the_middle_learns_the_same_and_verifies(
    algorithm: str, learner: dict[str, object], tmp_path: Path
) -> None:
    settings = settings_of(algorithm, **learner)
    made = await run_of(tmp_path / "run", settings)
    trained = await copy_of(made, tmp_path / "trained")
    until = 3 * settings.learner.minibatches
    await learn(trained, until=until)
    expected = what_was_learned(await events_of(trained.log))
    first, *later = await plans(trained)
    assert first.algorithm == "sft"
    assert later
    assert {one.algorithm for one in later} == {algorithm}
    before = len(what_was_learned(await events_of(made.log)))
    facts = len(expected) - before
    for number in range(1, facts + 1, 2) if algorithm == "dpo" else (facts // 3, 2 * facts // 3):
        cut = await copy_of(made, tmp_path / f"cut{number}")
        with pytest.raises(Killed):
            await learn(cut, log=Watched(cut.log, number, after=die))  # type: ignore[arg-type]
        await learn(cut, until=until)
        assert what_was_learned(await events_of(cut.log)) == expected, f"killed after event {number}"
    report = await verify(trained.log, trained.blobs, policy=trained.policy)
    assert report.identical
    assert (await audited(trained)).defects == ()


async def test_pairs_are_a_demonstration_and_a_failure_at_the_same_task(tmp_path: Path) -> None:
    made = await run_of(tmp_path, settings_of("dpo", pair_batch=3, minibatches=2))
    await tell(made.log, made.story.group(Member(0.0, 1, version=1), seed=77))
    await learn(made, until=6)
    tasks = {one.id: one.task for one in (await folded(made.log)).episodes.values()}
    requested = {
        r.fact.episode: r.fact.task.id for r in await events_of(made.log) if r.envelope.type == "episode.requested"
    }  # fmt: skip
    _, *later = await plans(made)
    used: list[str] = []
    for one in later:
        assert one.reference_version == 1
        better, worse = one.episodes[::2], one.episodes[1::2]
        assert [each.advantage for each in one.episodes] == [1.0, -1.0] * len(better)
        assert all(each.reward == 1.0 for each in better)
        assert all(each.reward == 0.0 for each in worse)
        assert [requested[each.episode] for each in better] == [requested[each.episode] for each in worse]
        used += [each.episode for each in worse]
    assert len(used) == len(set(used)) == 6
    assert set(tasks) >= {name for name in requested if name.startswith("ep_group_0")}, "demonstrations stay"
    assert await swept(made) == {"successful": 8, "unpaired": 1}


class Overtaken(Watched):
    """A log in which something else is recorded just before the learner's first event that holds certain bytes."""

    def __init__(self, log: MemoryLog, holding: bytes, *, by: Sequence[Told]) -> None:
        super().__init__(log, 0)
        self._holding, self._by = holding, list(by)

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        if any(self._holding in record.data for record in batch) and self._by:
            by, self._by = self._by, []
            await tell(self._log, by)
        return await super().append(batch, expect=expect)


async def test_a_sweep_is_verified_as_of_what_the_learner_knew_not_of_what_came_before_it_meanwhile(
    tmp_path: Path,
) -> None:
    made = await run_of(tmp_path / "run", settings_of("dpo", pair_batch=3))
    await tell(made.log, made.story.group(Member(0.0, 1, version=1), seed=77))
    late = made.story.group(SHOWN, seed=77)
    await learn(made, until=3, log=Overtaken(made.log, b"unpaired", by=late))  # type: ignore[arg-type]
    facts = await events_of(made.log)
    (at,) = (r for r in facts if isinstance(r.fact, SamplesSwept) and r.fact.reason == "unpaired")
    assert at.position - at.fact.as_of == 1 + len(late), "decided before the demonstration came"
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert (await audited(made)).defects == ()

    def hindsight(event: dict[str, Any]) -> None:
        event["payload"]["as_of"] = at.position - 1

    forged = await copy_of(made, tmp_path / "forged")
    forge(forged.log, at.position, hindsight)
    report = await verify(forged.log, forged.blobs, policy=forged.policy)
    assert report.first_divergence is not None
    assert report.first_divergence.position == at.position


async def test_dpo_lowers_its_loss_on_pairs_it_has_seen(tmp_path: Path) -> None:
    made = await run_of(tmp_path, settings_of("dpo", pair_batch=8, minibatches=1, epochs=6, dpo_beta=0.5))
    await learn(made, until=7)
    losses = [r.fact.metrics["loss"] for r in await events_of(made.log) if isinstance(r.fact, UpdateApplied)][
        1:
    ]
    assert losses[0] == pytest.approx(0.6931, abs=1e-3), "the policy is its own reference at first"
    assert losses[-1] < losses[0] - 0.05


async def test_a_stale_failure_is_compared_with_nothing(tmp_path: Path) -> None:
    settings = settings_of("dpo", pair_batch=1, max_staleness=0)
    made = await run_of(tmp_path, settings)
    await learn(made, until=2)
    (gone,) = (one for one in sweep(await folded(made.log), settings) if one.reason == "stale")
    assert len(gone.episodes) == 7


async def test_a_window_without_a_success_is_given_up(tmp_path: Path) -> None:
    made = await bench(
        tmp_path, batches=0, settings=settings_of("filtered_bc", filter_episodes=4, cloning_updates=0)
    )
    await tell(made.log, made.story.group(*[Member(0.0, 1)] * 4))
    await tell(made.log, made.story.group(Member(1.0, 2), Member(0.0, 1), Member(1.0, 1), Member(0.0, 1)))
    await learn(made, until=1)
    (only,) = await plans(made)
    assert [(one.reward, one.samples) for one in only.episodes] == [(1.0, 1), (1.0, 2)]
    assert len(only.consumed) == 2
    assert await swept(made) == {"unsuccessful": 4}


async def test_what_a_policy_always_wins_is_not_imitated_again(tmp_path: Path) -> None:
    settings = settings_of("self_imitation", cloning_updates=0, cloning_batch=2)
    made = await bench(tmp_path, batches=0, settings=settings)
    await tell(made.log, made.story.group(*[Member(1.0, 1)] * 4))
    await tell(made.log, made.story.group(Member(1.0, 2), *[Member(0.0, 1)] * 3))
    await learn(made, until=1)
    (only,) = await plans(made)
    assert [(one.episode, one.advantage) for one in only.episodes] == [("ep_group_1_0", 0.75)]
    assert await swept(made) == {"agreed": 4, "unsuccessful": 3}


async def test_a_loss_on_the_answer_alone_leaves_its_thought_out(tmp_path: Path) -> None:
    """The same steps, once with the thought's tokens altered in probability: nothing learned may depend on them."""
    weights = []
    for shift in (0.0, -3.0):
        settings = settings_with(
            group_batch=1, minibatches=1, loss_on="answer", kl_coefficient=0.01, cloning_coefficient=0.1
        )
        made = await bench(tmp_path / str(shift), batches=0, settings=settings)
        told = group_at(made, 1)
        await tell(made.log, [one._replace(fact=_thoughtful(one.fact, shift)) for one in told])
        await learn(made, until=1)
        (update,) = [r.fact for r in await events_of(made.log) if isinstance(r.fact, UpdateApplied)]
        weights.append(update.after)
        assert update.metrics["tokens"] == sum(
            len(one.fact.action_ids) // 4 for one in told if isinstance(one.fact, StepTaken)
        )
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert weights[0] == weights[1]


def _thoughtful(fact: Fact, shift: float) -> Fact:
    """The first two tokens as a thought, recorded as less likely than they were."""
    if not isinstance(fact, StepTaken):
        return fact
    logprobs = unpack_floats(fact.logprobs).copy()
    logprobs[:2] += shift
    return msgspec.structs.replace(fact, answer_from=2, logprobs=pack_floats(logprobs.tolist()))


async def test_what_was_imitated_is_not_used_up_for_an_algorithm_that_takes_over(tmp_path: Path) -> None:
    """As a fork of a run that clones into M-GRPO, which gives up the groups whose successes alone were left, and cloned."""
    cloning = settings_with(algorithm="cloning", cloning_batch=6, minibatches=1)
    made = await bench(tmp_path, batches=0, settings=cloning)
    await tell(made.log, made.story.group(Member(1.0, 1), Member(0.0, 2), Member(1.0, 3)))
    await tell(made.log, made.story.group(Member(1.0, 1), Member(1.0, 1)))
    await learn(made, until=1)
    changes = {"learner": {"algorithm": "grpo", "group_batch": 1, "max_staleness": 9}}
    await tell(made.log, [Told("change", RUN, RecipeChanged(author="t", reason="", changes=changes))])
    await tell(made.log, group_at(made, 2))
    await learn(made, until=2)
    first, second = await plans(made)
    assert (first.algorithm, second.algorithm) == ("cloning", "grpo")
    imitated = {one.episode for one in first.episodes}
    given_up = {
        name
        for r in await events_of(made.log)
        if isinstance(r.fact, SamplesSwept)
        for name in r.fact.episodes
    }
    assert imitated & given_up
    assert (await audited(made)).defects == ()


async def test_without_enough_pairs_there_is_no_plan(tmp_path: Path) -> None:
    settings = settings_of("dpo", pair_batch=9)
    made = await run_of(tmp_path, settings)
    assert plan(await folded(made.log), settings) is None


async def test_the_audit_finds_pairs_that_are_none(tmp_path: Path) -> None:
    made = await run_of(tmp_path / "run", settings_of("dpo", pair_batch=3))
    await learn(made, until=2)
    assert (await audited(made)).defects == ()

    def turned(event: dict[str, Any]) -> None:
        event["payload"]["episodes"][1]["advantage"] = 1.0

    def crossed(event: dict[str, Any]) -> None:
        planned = event["payload"]["episodes"]
        planned[0], planned[4] = planned[4], planned[0]

    place = positions(made.log, "batch.planned")[1]
    planned = (await plans(made))[1].episodes
    assert planned[0].episode != planned[4].episode, "of two tasks"
    for change, words in ((turned, "its episodes are not pairs"), (crossed, "tasks of the pair")):
        forged = await copy_of(made, tmp_path / change.__name__)
        forge(forged.log, place, change)
        assert any(words in defect.what for defect in (await audited(forged)).defects), words
