"""Success replay and the format term: who is replaced by whom, when, and that off means off."""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.domain.arrays import unpack_floats
from hindcast.core.rl.advantages import failed_altogether, group_advantages
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    RecipeChanged,
    SamplesSwept,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.algorithms import loss_for
from hindcast.learner.batch_plan import minibatches_of, plan, sweep
from hindcast.learner.buffer.snapshots import LEARNER, FoldedLog
from hindcast.learner.sample_terms import sample_terms
from hindcast.storage.blobs.store import BlobStore
from stories.training_story import (
    RUN,
    Bench,
    Member,
    Story,
    Told,
    copy_of,
    events_of,
    folded,
    informative,
    learn,
    settings_with,
    tell,
    what_was_learned,
)

pytestmark = pytest.mark.torch

FAILED = tuple(Member(0.0, 1 + index % 2) for index in range(4))
WON = tuple(Member(1.0, 1) for _ in range(4))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy"))


def replaying(**learner: Any) -> Settings:
    chosen = {"success_replay": "random", "group_batch": 1, "minibatches": 1, "kl_coefficient": 0, **learner}
    return settings_with(**chosen)


class Telling:
    """A log that grows, with a learner's decisions in between."""

    def __init__(self, folder: Path, policy: Path, settings: Settings) -> None:
        self.settings = settings
        self.log = MemoryLog(RUN)
        self.story = Story(policy)
        self.blobs = BlobStore(folder)

    async def begin(self) -> "Telling":
        await tell(self.log, [self.story.start(self.blobs, self.settings)])
        return self

    async def group(self, *members: Member, task: int = 1) -> None:
        await tell(self.log, self.story.group(*members, seed=task))

    async def sweep(self) -> list[SamplesSwept]:
        """What is swept now, recorded."""
        swept = sweep(await folded(self.log), self.settings)
        for fact in swept:
            await tell(self.log, [Told("learner", "samples", fact)])
        return swept

    async def plan(self) -> BatchPlanned | None:
        """The next plan; recorded, and its weights published."""
        state = await folded(self.log)
        made = plan(state, state.settings)
        if made is not None:
            weights = self.blobs.put(b"weights")
            published = WeightsPublished(
                version=state.version + 1, model="policy", weights=weights, update=made.batch + 1
            )
            await tell(self.log, [Told("learner", "batch", made), Told("learner", "policy", published)])
        return made


async def begun(folder: Path, policy: Path, **learner: Any) -> Telling:
    return await Telling(folder, policy, replaying(**learner)).begin()


def replays(made: BatchPlanned) -> list[PlannedEpisode]:
    return [planned for planned in made.episodes if planned.replaces is not None]


async def test_a_stored_success_stands_in_for_one_member_of_a_group_that_failed(
    tmp_path: Path, policy: Path
) -> None:
    told = await begun(tmp_path, policy)
    await told.group(*WON)
    await told.sweep()
    await told.group(*FAILED)
    assert await told.sweep() == []
    made = await told.plan()
    assert made is not None
    (replay,) = replays(made)
    members = {f"ep_group_1_{index}" for index in range(4)}
    assert replay.episode in {f"ep_group_0_{index}" for index in range(4)}
    assert (replay.group, replay.reward) == ("group_1", 1.0)
    assert made.consumed == (replay.replaces,)
    assert {planned.episode for planned in made.episodes} == members - {replay.replaces} | {replay.episode}
    # one success among four: mean 1/4, deviation sqrt(3)/4
    deviation = sqrt(3) / 4 + 1e-4
    assert {planned.advantage for planned in made.episodes} == {0.75 / deviation, -0.25 / deviation}
    assert replay.advantage == 0.75 / deviation


async def test_the_released_variant_replaces_the_first_member(tmp_path: Path, policy: Path) -> None:
    told = await begun(tmp_path, policy, success_replay="first")
    await told.group(*WON)
    await told.sweep()
    for _ in range(3):
        await told.group(*FAILED)
        made = await told.plan()
        assert made is not None
        assert made.episodes[0].replaces == f"ep_group_{made.batch + 1}_0"


async def test_the_random_member_is_not_always_the_same_and_follows_from_the_seed(
    tmp_path: Path, policy: Path
) -> None:
    told = await begun(tmp_path, policy)
    await told.group(*WON)
    await told.sweep()
    chosen = []
    for _ in range(8):
        await told.group(*FAILED)
        first, again = plan(await folded(told.log), told.settings), await told.plan()
        assert first == again
        assert first is not None
        chosen.append(str(replays(first)[0].replaces)[-1])
    assert len(set(chosen)) > 1


async def test_a_success_is_never_replayed_in_its_own_batch(tmp_path: Path, policy: Path) -> None:
    told = await begun(tmp_path, policy, group_batch=2)
    await told.group(*informative())
    await told.group(*informative())
    await told.group(*FAILED)
    (swept,) = await told.sweep()  # nothing of its task is in store yet
    assert (swept.reason, len(swept.episodes)) == ("agreed", 4)
    made = await told.plan()
    assert made is not None
    assert replays(made) == []
    (kept,) = (await folded(told.log)).stored.values()
    assert [one.group for one in kept] == ["group_0", "group_0", "group_1", "group_1"]


async def test_successes_of_another_task_are_not_replayed(tmp_path: Path, policy: Path) -> None:
    told = await begun(tmp_path, policy)
    await told.group(*WON, task=1)
    await told.sweep()
    await told.group(*FAILED, task=2)
    (swept,) = await told.sweep()
    assert (swept.reason, len(swept.episodes)) == ("agreed", 4)


async def test_a_success_swept_from_the_very_group_is_not_replayed_into_it(
    tmp_path: Path, policy: Path
) -> None:
    told = await begun(tmp_path, policy)
    await told.group(Member(1.0, 1), *FAILED[1:])
    stale = SamplesSwept(episodes=("ep_group_0_0",), reason="stale", version=0)
    await tell(told.log, [Told("learner", "samples", stale)])
    assert [fact.reason for fact in await told.sweep()] == ["agreed"]


async def test_the_store_is_first_in_first_out_per_task_and_holds_results_above_a_tenth(
    tmp_path: Path, policy: Path
) -> None:
    told = await begun(tmp_path, policy, replay_memory=3)
    await told.group(*WON, task=1)
    await told.group(Member(1.0, 1), Member(1.0, 1), Member(1.0, 1), Member(1.0, 1), task=1)
    await told.group(*(Member(0.1, 1, outcome="success") for _ in range(4)), task=2)
    await told.group(*(Member(0.15, 1, outcome="failure") for _ in range(4)), task=3)
    await told.sweep()
    (kept, third) = (await folded(told.log)).stored.values()
    assert [one.id for one in kept] == [f"ep_group_1_{index}" for index in (1, 2, 3)]
    assert [one.group for one in third] == ["group_3"] * 3


@pytest.mark.parametrize(
    ("results", "failed"),
    [
        ([0.0] * 8, True),
        ([0.0] * 7 + [1.0], False),
        ([0.19] * 4, True),
        ([0.2] * 4, False),  # the mean has to be below .2
        ([0.0, 0.099], True),
        ([0.0, 0.101], False),  # the deviation has to be below .05
        ([0.0], False),
    ],
)
def test_a_group_has_failed_altogether_below_both_bounds(results: list[float], failed: bool) -> None:
    assert failed_altogether(results) is failed


async def test_the_format_term_counts_once_and_is_no_part_of_the_trigger(
    tmp_path: Path, policy: Path
) -> None:
    told = await begun(tmp_path, policy, success_replay="first", format_penalty=1.0)
    await told.group(*WON)
    await told.sweep()
    await told.group(FAILED[0], Member(0.0, 2, unparsable=True), *FAILED[2:])
    made = await told.plan()
    assert made is not None
    # task results all 0, so index 0 is replaced; rewards compared are then 1, -1, 0, 0: mean 0, deviation sqrt(1/2)
    assert [planned.reward for planned in made.episodes] == [1.0, 0.0, 0.0, 0.0]
    assert [planned.format_term for planned in made.episodes] == [0.0, -1.0, 0.0, 0.0]
    step = 1 / (sqrt(0.5) + 1e-4)
    assert [planned.advantage for planned in made.episodes] == pytest.approx([step, -step, 0, 0], rel=1e-12)


async def test_without_a_success_in_store_the_format_alone_tells_members_apart(
    tmp_path: Path, policy: Path
) -> None:
    told = await begun(tmp_path, policy, success_replay="off", format_penalty=0.5)
    await told.group(*FAILED[:3], Member(0.0, 3, unparsable=True))
    assert await told.sweep() == []
    made = await told.plan()
    assert made is not None
    assert [planned.advantage for planned in made.episodes] == group_advantages([0.0, 0.0, 0.0, -0.5])


async def test_age_and_use_count_are_metrics_of_the_update(tmp_path: Path, policy: Path) -> None:
    made = await replayed(tmp_path, policy, epochs=2)
    await learn(made, until=6)
    first, *later = [r.fact for r in await events_of(made.log) if isinstance(r.fact, UpdateApplied)]
    names = ("replayed_episodes", "replay_age", "replay_uses")
    assert [first.metrics[name] for name in names] == [0.0, 0.0, 0.0]
    # one success, sampled from version 0; gone through twice in each batch, which counts as one use
    told = [[update.metrics[name] for name in names] for update in later[1:]]
    assert told == [[1.0, 1.0, 1.0]] * 2 + [[1.0, 2.0, 2.0]] * 2
    assert all(update.metrics["staleness_max"] <= update.metrics["replay_age"] for update in later)


async def replayed(folder: Path, policy: Path, **learner: Any) -> Bench:
    """A log in which two batches replay a success of the one before them, told up to the first batch."""
    settings = replaying(replay_memory=1, **learner)
    told = await Telling(folder, policy, settings).begin()
    await told.group(*informative())
    made = Bench(told.log, told.blobs, policy, told.story)
    await learn(made, until=settings.learner.epochs)
    await told.group(*FAILED)
    await told.group(*FAILED)
    return made


@pytest.mark.parametrize(("choice", "expected"), [("behaviour", 1.5), ("recomputed", 1.0)])
async def test_a_replay_is_corrected_by_its_own_log_probabilities_or_begins_at_ratio_1(
    tmp_path: Path, policy: Path, choice: str, expected: float
) -> None:
    told = await begun(tmp_path, policy, replay_correction=choice, correction="decoupled", ratio_cap=2.0)
    await told.group(*WON)
    await told.sweep()
    await told.group(*FAILED)
    made = plan(await folded(told.log), told.settings)
    assert made is not None
    await tell(told.log, [Told("learner", "batch", made)])
    batch = (await folded(told.log)).batch
    assert batch is not None
    # the policy of now finds every token of every sample half as likely again as it was
    proximal = [unpack_floats(sample.logprobs) + np.float32(np.log(1.5)) for sample in batch.samples]
    found = sample_terms(
        made,
        batch,
        minibatches_of(made)[0],
        loss=loss_for(batch.settings),
        settings=batch.settings,
        proximal=proximal,
        reference=None,
    )
    (replay,) = replays(made)
    own = [term for term in found if term.sample.episode == replay.episode]
    others = [term for term in found if term.sample.episode != replay.episode]
    assert own
    assert np.concatenate([term.correction.weights for term in own]) == pytest.approx(expected, rel=1e-5)
    assert np.concatenate([term.correction.weights for term in others]) == pytest.approx(1.5, rel=1e-5)
    # what is clipped is the ratio to the policy of now in either case, and what was recorded is left as it is
    assert all(np.array_equal(term.behaviour, unpack_floats(term.sample.logprobs)) for term in found)


async def test_off_is_off(tmp_path: Path, policy: Path) -> None:
    """Plans and weights are those of plain GRPO, whatever else is set about replay, to the bit."""
    learned: list[Sequence[Any]] = []
    for name, extra in (
        ("plain", {}),
        ("off", {"success_replay": "off", "replay_memory": 1, "replay_correction": "recomputed"}),
    ):
        settings = settings_with(group_batch=1, minibatches=2, clip_high=0.3, **extra)
        told = await Telling(tmp_path / name, policy, settings).begin()
        made = Bench(told.log, told.blobs, policy, told.story)
        for goal in (2, 4):
            await told.group(*informative())
            await told.group(*FAILED)
            await learn(made, until=goal)
        assert (await folded(told.log)).stored == {}
        learned.append(
            [
                msgspec.structs.replace(fact, config_digest="", sample_digests=b"")
                if isinstance(fact, BatchPlanned)
                else fact
                for fact in what_was_learned(await events_of(told.log))
            ]
        )
    assert learned[0] == learned[1]
    assert sum(isinstance(fact, UpdateApplied) for fact in learned[0]) == 4
    assert not any(replays(fact) for fact in learned[0] if isinstance(fact, BatchPlanned))
    assert not any(
        "replay" in key for fact in learned[0] if isinstance(fact, UpdateApplied) for key in fact.metrics
    )


async def test_on_without_a_failed_group_the_weights_are_those_of_off(tmp_path: Path, policy: Path) -> None:
    after = []
    for switch in ("off", "random"):
        settings = settings_with(group_batch=1, minibatches=2, success_replay=switch)
        told = await Telling(tmp_path / switch, policy, settings).begin()
        made = Bench(told.log, told.blobs, policy, told.story)
        for goal in (2, 4):
            await told.group(*informative())
            await learn(made, until=goal)
        after.append([r.fact.after for r in await events_of(told.log) if isinstance(r.fact, UpdateApplied)])
    assert after[0] == after[1]


async def test_switching_it_off_in_a_running_run_empties_the_store(tmp_path: Path, policy: Path) -> None:
    told = await begun(tmp_path, policy)
    await told.group(*WON)
    await told.sweep()
    assert (await folded(told.log)).stored
    changed = RecipeChanged(
        author="test", changes={"learner": {"options": {"success_replay": "off"}}}, reason=""
    )
    await tell(told.log, [Told("app", RUN, changed)])
    assert (await folded(told.log)).stored == {}


async def test_the_store_is_in_the_snapshot_of_the_fold(tmp_path: Path, policy: Path) -> None:
    told = await begun(tmp_path, policy)
    await told.group(*WON)
    await told.sweep()
    await told.group(*FAILED)
    state = await folded(told.log)
    again = LEARNER.decode(LEARNER.encode(FoldedLog(state, {}))).state
    assert again.stored == state.stored
    assert plan(again, told.settings) == plan(state, told.settings)


async def test_a_log_copied_byte_for_byte_gives_the_same_store(tmp_path: Path, policy: Path) -> None:
    made = await replayed(tmp_path / "first", policy)
    await learn(made, until=3)
    again = await copy_of(made, tmp_path / "second")
    assert (await folded(again.log)).stored == (await folded(made.log)).stored


@given(st.lists(st.sampled_from([0.0, 0.15, 0.5, 1.0]), min_size=2, max_size=8))
def test_a_group_with_one_full_success_never_counts_as_failed(results: list[float]) -> None:
    assert failed_altogether(results) == (np.std(results) < 0.05 and np.mean(results) < 0.2)
    assert not failed_altogether([*results, 1.0])
