"""Plans: a function of the log alone, complete, in the order of completion, cut at whole groups."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.domain.arrays import pack_ids, unpack_ids, unpack_positions
from hindcast.core.errors import CorruptEvent
from hindcast.core.rl.advantages import group_advantages
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeJudged,
    EpisodeRequested,
    SamplesSwept,
    WeightsPublished,
)
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.batch_plan import Minibatch, minibatches_of, missing, plan, sweep
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import config_digest
from hindcast.storage.blobs.store import BlobStore
from stories.training_story import (
    RUN,
    Member,
    Story,
    Told,
    events_of,
    folded,
    informative,
    settings_with,
    tell,
)

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy"))


async def log_with(folder: Path, policy: Path, settings: Settings, *groups: Sequence[Member]) -> MemoryLog:
    story, log = Story(policy), MemoryLog(RUN)
    told = [story.start(BlobStore(folder), settings)]
    for members in groups:
        told += story.group(*members)
    await tell(log, told)
    return log


def required(made: BatchPlanned | None) -> BatchPlanned:
    assert made is not None
    return made


async def planned_from(
    folder: Path, policy: Path, *groups: Sequence[Member], **learner: Any
) -> BatchPlanned | None:
    settings = settings_with(**learner)
    state = await folded(await log_with(folder, policy, settings, *groups))
    return plan(state, settings)


async def test_there_is_no_plan_before_enough_groups_differ(tmp_path: Path, policy: Path) -> None:
    agreeing = (Member(1.0, 2), Member(1.0, 1))
    assert await planned_from(tmp_path, policy, informative(), agreeing, group_batch=2) is None
    assert (
        await planned_from(tmp_path, policy, informative(), agreeing, informative(), group_batch=2)
        is not None
    )


async def test_a_plan_says_everything_that_its_updates_depend_on(tmp_path: Path, policy: Path) -> None:
    settings = settings_with(group_batch=2)
    agreeing = (Member(0.0, 1), Member(0.0, 1))
    log = await log_with(tmp_path, policy, settings, informative(), agreeing, informative(steps=1))
    recordeds = await events_of(log)
    made = required(plan(await folded(log), settings))
    digest = RollingDigest()
    for recorded in recordeds:
        digest.advance(recorded.digest)
    assert (made.batch, made.algorithm, made.version, made.as_of) == (0, "grpo", 0, len(recordeds))
    assert made.log_digest == digest.value
    assert made.config_digest == config_digest(settings.model_dump(mode="json"))
    assert (made.reference_version, made.proximal_version) == (0, 0)
    assert made.consumed == ("ep_group_1_0", "ep_group_1_1")
    positions = unpack_positions(made.positions).tolist()
    steps = {r.position: r for r in recordeds if r.envelope.type == "step.taken"}
    assert made.sample_digests == b"".join(steps[position].digest[:8] for position in positions)
    in_order = [(steps[position].fact.episode, steps[position].fact.index) for position in positions]  # type: ignore[attr-defined]
    assert in_order == [(e.episode, index) for e in made.episodes for index in range(e.samples)]
    assert [e.advantage for e in made.episodes[:4]] == group_advantages([1.0, 0.0, 1.0, 0.0])
    assert unpack_ids(made.minibatches).tolist() == [11, 7]


async def test_without_the_filter_groups_that_agree_count_with_advantage_0(
    tmp_path: Path, policy: Path
) -> None:
    settings = settings_with(group_batch=2, options={"group_filter": False})
    agreeing, alone = (Member(0.0, 1), Member(0.0, 2)), (Member(1.0, 1), Member(0.0, 1, abandoned=True))
    state = await folded(await log_with(tmp_path, policy, settings, alone, agreeing, informative()))
    assert [(one.reason, one.episodes) for one in sweep(state, settings)] == [("alone", ("ep_group_0_0",))]
    made = required(plan(state, settings))
    assert [(one.group, one.advantage) for one in made.episodes[:2]] == [("group_1", 0.0)] * 2
    assert [one.advantage for one in made.episodes[2:]] == group_advantages([1.0, 0.0, 1.0, 0.0])
    assert made.consumed == ("ep_group_0_0",)


async def test_groups_stand_in_the_order_in_which_they_were_completed(tmp_path: Path, policy: Path) -> None:
    settings = settings_with(group_batch=2)
    story, log = Story(policy), MemoryLog(RUN)
    first, second = story.group(*informative()), story.group(*informative())
    held, rest = first[-1], first[:-1]
    await tell(log, [story.start(BlobStore(tmp_path), settings), *rest, *second, held])
    made = required(plan(await folded(log), settings))
    assert [e.group for e in made.episodes] == ["group_1"] * 4 + ["group_0"] * 4


async def test_a_plan_does_not_depend_on_how_events_arrive(tmp_path: Path, policy: Path) -> None:
    settings = settings_with(group_batch=2)
    log = await log_with(tmp_path, policy, settings, *[informative(steps=1 + i % 2) for i in range(4)])
    recordeds = await events_of(log)

    def fold(batch: int) -> tuple[BufferState, dict[int, BatchPlanned | None]]:
        """Folded in batches, planned after each."""
        buffer, plans = ReplayBuffer(), {}
        state = buffer.initial()
        for start in range(0, len(recordeds), batch):
            for recorded in recordeds[start : start + batch]:
                state = buffer.apply(state, recorded)
            sweep(state, settings)
            plans[state.position] = plan(state, settings)
        return state, plans

    state, one_by_one = fold(1)
    for batch in (2, 7, 1000):
        other, plans = fold(batch)
        assert other.digest.value == state.digest.value
        assert replace(other, digest=state.digest) == state
        assert plans == {position: one_by_one[position] for position in plans}


@pytest.mark.parametrize(
    ("groups", "minibatches", "sizes"),
    [(2, 1, [22]), (2, 2, [11, 11]), (3, 2, [11, 22]), (1, 2, [5, 6]), (1, 8, [2, 3, 2, 4])],
)
async def test_minibatches_are_whole_groups_or_where_there_are_too_few_whole_episodes(
    tmp_path: Path, policy: Path, groups: int, minibatches: int, sizes: list[int]
) -> None:
    made = required(
        await planned_from(
            tmp_path, policy, *[informative()] * groups, group_batch=groups, minibatches=minibatches
        )
    )
    assert unpack_ids(made.minibatches).tolist() == sizes
    parts = minibatches_of(made)
    assert [part.end_sample - part.first_sample for part in parts] == sizes
    assert [part.first_episode for part in parts[1:]] == [part.end_episode for part in parts[:-1]]


async def test_a_plan_that_cuts_an_episode_is_refused(tmp_path: Path, policy: Path) -> None:
    made = required(await planned_from(tmp_path, policy, informative(), group_batch=1, minibatches=1))
    assert minibatches_of(made) == [Minibatch(0, 4, 0, 11)]
    for sizes in ([3, 8], [5], [5, 7]):
        with pytest.raises(CorruptEvent, match="batch 0"):
            minibatches_of(msgspec.structs.replace(made, minibatches=pack_ids(sizes)))


async def test_only_fresh_online_episodes_that_are_too_old_are_stale(tmp_path: Path, policy: Path) -> None:
    settings = settings_with(max_staleness=1, group_batch=1)
    old, fresh = informative(version=0), informative(version=1)
    story, log = Story(policy), MemoryLog(RUN)
    blobs = BlobStore(tmp_path)
    start = story.start(blobs, settings)
    told = [start, *story.group(*old), *story.group(*fresh), *story.group(*old[:2])[:-1]]
    weights = start.fact.base_policy  # type: ignore[attr-defined]
    for version in (0, 1, 2):
        fact = WeightsPublished(version=version, model="policy", weights=weights, update=version)
        told.append(Told("learner", "policy", fact))
    await tell(log, told)
    state = await folded(log)
    (swept,) = sweep(state, settings)
    assert (swept.reason, swept.version) == ("stale", 2)
    # the members of the incomplete group too: whatever becomes of the last one, these are too old
    assert swept.episodes == (*(f"ep_group_0_{i}" for i in range(4)), "ep_group_2_0", "ep_group_2_1")
    cloning = settings_with(max_staleness=1, algorithm="cloning")
    assert "stale" not in {fact.reason for fact in sweep(state, cloning)}


async def test_an_episode_that_ended_without_a_step_trains_nobody(tmp_path: Path, policy: Path) -> None:
    settings = settings_with(group_batch=1)
    log = await log_with(tmp_path, policy, settings, (Member(1.0, 0), Member(1.0, 1), Member(0.0, 1)))
    state = await folded(log)
    assert {fact.reason: fact.episodes for fact in sweep(state, settings)} == {"empty": ("ep_group_0_0",)}
    made = required(plan(state, settings))
    assert ([e.episode for e in made.episodes], made.consumed) == (
        ["ep_group_0_1", "ep_group_0_2"],
        ("ep_group_0_0",),
    )


class TestCloning:
    """Cloning draws whole successful episodes, each as often as the others, at most `cloning_epochs` times."""

    GROUPS = tuple((Member(1.0, 2, origin="demonstration"),) for _ in range(5))

    async def plans(self, folder: Path, policy: Path, count: int, **learner: Any) -> list[BatchPlanned]:
        settings = settings_with(algorithm="cloning", cloning_batch=4, **learner)
        log = await log_with(folder, policy, settings, *self.GROUPS)
        made = []
        for number in range(count):
            state = await folded(log)
            fact = plan(state, settings)
            if fact is None:
                break
            made.append(fact)
            weights = state.started.base_policy  # type: ignore[union-attr]
            published = WeightsPublished(version=number + 1, model="policy", weights=weights, update=number)
            await tell(log, [Told("learner", "b", fact), Told("learner", "p", published)])
        return made

    async def test_every_episode_is_used_once_before_any_is_used_twice(
        self, tmp_path: Path, policy: Path
    ) -> None:
        made = await self.plans(tmp_path, policy, 5)
        order = [e.episode for fact in made for e in fact.episodes]
        assert len(order) == 10
        assert sorted(order[:5]) == sorted(order[5:]) == sorted(f"ep_group_{i}_0" for i in range(5))
        assert order[:5] != sorted(order[:5]) or order[5:] != sorted(order[5:])

    async def test_no_episode_is_used_more_often_than_the_settings_say(
        self, tmp_path: Path, policy: Path
    ) -> None:
        made = await self.plans(tmp_path, policy, 50, cloning_epochs=2)
        assert len([e for fact in made for e in fact.episodes]) == 10

    async def test_failures_are_swept_and_never_cloned(self, tmp_path: Path, policy: Path) -> None:
        settings = settings_with(algorithm="cloning", cloning_batch=2)
        log = await log_with(tmp_path, policy, settings, (Member(0.0, 3), Member(1.0, 2)))
        state = await folded(log)
        assert [(f.reason, f.episodes) for f in sweep(state, settings)] == [
            ("unsuccessful", ("ep_group_0_0",))
        ]
        made = required(plan(state, settings))
        assert [e.episode for e in made.episodes] == ["ep_group_0_1"]
        assert (made.reference_version, made.proximal_version) == (None, None)


class TestFewDemonstrations:
    """All demonstrations together have fewer steps than a batch of cloning: it is what there is, once all are in."""

    SHOWN = Member(1.0, 2, origin="demonstration")

    def settings(self, wanted: int, **learner: Any) -> Settings:
        chosen = settings_with(**{"algorithm": "sft", "cloning_batch": 50, "minibatches": 1, **learner})
        return chosen.model_copy(
            update={"curriculum": chosen.curriculum.model_copy(update={"demonstrations": wanted})}
        )

    @pytest.mark.parametrize(
        "learner", [{"algorithm": "sft"}, {"algorithm": "grpo", "cloning_updates": 2}], ids=["sft", "before"]
    )
    async def test_the_batch_is_what_there_is_once_all_are_in(
        self, tmp_path: Path, policy: Path, learner: dict[str, Any]
    ) -> None:
        settings = self.settings(3, **learner)
        log = await log_with(tmp_path, policy, settings, (self.SHOWN,), (self.SHOWN,))
        assert plan(await folded(log), settings) is None, "one more will be requested"
        third = Story(policy).group(Member(0.0, 1, origin="demonstration"), name="third")
        for told in third[:-1]:
            await tell(log, [told])
            assert plan(await folded(log), settings) is None, "it is under way"
        await tell(log, third[-1:])
        made = required(plan(await folded(log), settings))
        assert {one.episode for one in made.episodes} == {"ep_group_0_0", "ep_group_1_0"}

    async def test_a_lost_demonstration_that_is_tried_again_is_waited_for(
        self, tmp_path: Path, policy: Path
    ) -> None:
        chosen = self.settings(2)
        settings = chosen.model_copy(
            update={"curriculum": chosen.curriculum.model_copy(update={"max_attempts": 2})}
        )
        lost = self.SHOWN._replace(abandoned=True)
        log = await log_with(tmp_path, policy, settings, (self.SHOWN,), (lost,))
        assert plan(await folded(log), settings) is None
        story = Story(policy)
        task = next(
            one.fact.task for one in story.group(self.SHOWN) if isinstance(one.fact, EpisodeRequested)
        )
        again = [story.request(task, "group_1", 0, 1, self.SHOWN, attempt=1)]
        again += story.episode(task, "ep_group_1_0_1", self.SHOWN)
        await tell(log, again)
        state = await folded(log)
        assert state.shown == 2, "the second try is of the same demonstration"
        assert len(required(plan(state, settings)).episodes) == 2

    async def test_each_is_used_in_as_many_batches_as_the_settings_say_the_last_one_small(
        self, tmp_path: Path, policy: Path
    ) -> None:
        settings = self.settings(3, cloning_batch=4, cloning_epochs=1)
        log = await log_with(tmp_path, policy, settings, *[(self.SHOWN,)] * 3)
        sizes = []
        while (fact := plan(state := await folded(log), settings)) is not None:
            sizes.append(len(fact.episodes))
            base = state.started.base_policy  # type: ignore[union-attr]
            published = WeightsPublished(version=len(sizes), model="policy", weights=base, update=len(sizes))
            await tell(log, [Told("learner", "b", fact), Told("learner", "p", published)])
        assert sizes == [2, 1]
        assert missing(state, settings).startswith("a demonstration to imitate: all 3 were played")

    async def test_without_a_successful_one_it_says_what_is_missing(
        self, tmp_path: Path, policy: Path
    ) -> None:
        settings = self.settings(1)
        log = await log_with(tmp_path, policy, settings)
        assert missing(await folded(log), settings).startswith("a batch of version 0")
        await tell(log, Story(policy).group(Member(0.0, 1, origin="demonstration")))
        state = await folded(log)
        assert plan(state, settings) is None
        assert "none that succeeded is left" in missing(state, settings)


async def test_pairs_without_a_demonstration_left_say_so(tmp_path: Path, policy: Path) -> None:
    settings = settings_with(algorithm="dpo")
    shown = Member(1.0, 2, origin="demonstration")
    log = await log_with(tmp_path, policy, settings, (shown,))
    assert missing(await folded(log), settings).startswith("a batch of version 0")
    past = SamplesSwept(episodes=("ep_group_0_0",), reason="past", version=0)
    await tell(log, [Told("learner", "samples", past)])
    assert missing(await folded(log), settings).startswith("a demonstration to prefer: all 1 were played")


async def test_verdicts_decide_the_advantages(tmp_path: Path, policy: Path) -> None:
    settings = settings_with(group_batch=1)
    story, log = Story(policy), MemoryLog(RUN)
    told = story.group(Member(0.5, 1), Member(1.0, 1), Member(0.0, 1))
    await tell(log, [story.start(BlobStore(tmp_path), settings), *told])
    made = required(plan(await folded(log), settings))
    rewards = [t.fact.judgment.reward for t in told if isinstance(t.fact, EpisodeJudged)]
    assert [e.reward for e in made.episodes] == rewards == [0.5, 1.0, 0.0]
    assert made.episodes[0].advantage == 0.0


async def test_a_further_epoch_goes_through_the_same_minibatches_again(tmp_path: Path, policy: Path) -> None:
    groups = [informative(), informative()]
    once = required(await planned_from(tmp_path, policy, *groups, group_batch=2, minibatches=2))
    twice = required(await planned_from(tmp_path, policy, *groups, group_batch=2, minibatches=2, epochs=2))
    assert twice.positions == once.positions * 2
    assert twice.minibatches == once.minibatches * 2
    assert [e.advantage for e in twice.episodes] == [e.advantage for e in once.episodes] * 2
    assert len(minibatches_of(twice)) == 4
