"""The outcome reward model on schedule: batches of its own, from labelled episodes, recomputed bit for bit."""

from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.published_versions import find_newest
from hindcast.core.domain.arrays import pack_ids, unpack_positions
from hindcast.core.domain.evidence import Judgment
from hindcast.core.models.auxiliary import OutcomeModel
from hindcast.core.rl.combined_state import ORM, POLICY
from hindcast.core.rl.held_out import is_held_out
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    EpisodeJudged,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.catalogue.verdict import JudgeIdentity, Reading
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.numerics import configure
from hindcast.learner.verify.verify import verify
from hindcast.storage.blobs.store import BlobStore
from stories.forged_log import audited
from stories.forging import all_of, forge
from stories.learner_story import Killed, Watched, die
from stories.training_story import (
    RUN,
    TOKENS,
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

EVERY = 8


def orm_settings(**learner: object) -> Settings:
    usual = {"orm_every": EVERY, "orm_epochs": 1, "orm_batch": 4, "orm_held_out": 0.25, "orm_memory": 16}
    chosen = settings_with(**(usual | learner))
    return chosen.model_copy(update={"judge": chosen.judge.model_copy(update={"judges": ("rules", ORM)})})


def reading(random: Random, *, success: bool) -> Reading:
    """What could be told apart: another last token for successes."""
    ids = [random.choice(TOKENS) for _ in range(random.randrange(5, 20))]
    return Reading(
        prompt_ids=pack_ids([*ids, 11 if success else 12]),
        truncated=False,
        model_version=None,
        probability=None,
    )


def read_too(told: list[Told], random: Random, *, unread: bool = False) -> list[Told]:
    """The same story with a verdict of the model behind each end; some before, some after that of the rules."""
    found: list[Told] = []
    for one in told:
        fact = one.fact
        if isinstance(fact, EpisodeJudged):
            said = EpisodeJudged(
                episode=fact.episode,
                task_id=fact.task_id,
                judge=JudgeIdentity(name=ORM, version="1-v0"),
                judgment=Judgment(outcome="undecided", reward=0.0, reason="no model"),
                reading=None if unread else reading(random, success=fact.judgment.outcome == "success"),
            )
            both = [one, Told("judge", f"{fact.episode}.{ORM}", said)]
            found += both if random.random() < 0.5 else reversed(both)
        else:
            found.append(one)
    return found


async def orm_bench(folder: Path, *, groups: int = 8, settings: Settings | None = None) -> Bench:
    """A log with so many groups of four, all of them read and labelled, before any learner started."""
    configure(1)
    policy = write_tiny_policy(folder / "policy")
    blobs = BlobStore(folder / "blobs")
    story, log, random = Story(policy), MemoryLog(RUN), Random(4)
    told = [story.start(blobs, settings or orm_settings())]
    for index in range(groups):
        told += read_too(story.group(*informative(steps=1 + index % 2)), random)
    await tell(log, told)
    return Bench(log, blobs, policy, story)


async def plans_of(made: Bench, model: str) -> list[BatchPlanned]:
    return [r.fact for r in await all_of(made, BatchPlanned) if r.fact.model == model]  # type: ignore[attr-defined]


async def test_the_model_has_batches_of_its_own_and_its_versions_are_published(tmp_path: Path) -> None:
    made = await orm_bench(tmp_path)
    await learn(made, until=4)
    (planned,) = await plans_of(made, ORM)
    updates = [r.fact for r in await all_of(made, UpdateApplied) if r.fact.model == ORM]  # type: ignore[attr-defined]
    (published,) = [r.fact for r in await all_of(made, WeightsPublished) if r.fact.model == ORM]  # type: ignore[attr-defined]
    assert len(await plans_of(made, POLICY)) == 2
    assert [update.minibatch for update in updates] == [0, 1]  # 8 labelled, once each, 4 in an update
    assert (published.version, published.update) == (1, 2)
    assert await find_newest(made.log, ORM, until=(await made.log.identity()).last) == published
    assert (await folded(made.log)).auxiliary_model(ORM).version == 1
    verdicts = {r.position: r.fact for r in await all_of(made, EpisodeJudged)}
    for position, part in zip(unpack_positions(planned.positions).tolist(), planned.episodes, strict=True):
        read = verdicts[position]
        assert isinstance(read, EpisodeJudged)
        assert (read.judge.name, read.episode) == (ORM, part.episode)
        assert not is_held_out(read.task_id, share=0.25)


async def test_each_update_learns_from_as_many_successes_as_failures(tmp_path: Path) -> None:
    """Though three quarters of what was labelled are failures."""
    policy, blobs = write_tiny_policy(tmp_path / "policy"), BlobStore(tmp_path / "blobs")
    configure(1)
    story, log, random = Story(policy), MemoryLog(RUN), Random(4)
    told = [story.start(blobs, orm_settings(orm_held_out=0.0))]
    for _ in range(2):
        members = (Member(1.0, 1), Member(0.0, 1), Member(0.0, 2), Member(0.0, 1))
        told += read_too(story.group(*members), random)
    await tell(log, told)
    made = Bench(log, blobs, policy, story)
    await learn(made, until=2)
    (planned,) = await plans_of(made, ORM)
    assert len(planned.episodes) == 8
    for half in (planned.episodes[:4], planned.episodes[4:]):
        assert sorted(one.reward for one in half) == [0.0, 0.0, 1.0, 1.0]
    assert len({one.episode for one in planned.episodes if one.reward == 0.0}) == 4


async def test_what_it_learned_tells_successes_from_failures(tmp_path: Path) -> None:
    made = await orm_bench(
        tmp_path, groups=12, settings=orm_settings(orm_epochs=12, orm_rate=3e-3, orm_held_out=0.0)
    )
    await learn(made, until=2)
    published = await find_newest(made.log, ORM, until=(await made.log.identity()).last)
    assert published is not None
    model = OutcomeModel(made.policy, made.blobs.path(published.weights), threads=1)
    random = Random(99)
    ids = [[random.choice(TOKENS) for _ in range(10)] for _ in range(8)]
    good = [model.probability([*one, 11]) for one in ids]
    bad = [model.probability([*one, 12]) for one in ids]
    assert min(good) > max(bad)


@pytest.mark.parametrize("killed_after", [2, 4, 5])
async def test_a_learner_killed_anywhere_goes_on_as_if_nothing_had_been(
    tmp_path: Path, killed_after: int
) -> None:
    """Behind its plan, its last update and its weights."""
    made = await orm_bench(tmp_path)
    whole = await copy_of(made, tmp_path / "whole")
    await learn(whole, until=4)
    with pytest.raises(Killed):
        await learn(made, until=4, log=Watched(made.log, killed_after, after=die))
    report = await learn(made, until=4)
    assert report.updates == 4
    assert what_was_learned(await events_of(made.log)) == what_was_learned(await events_of(whole.log))


async def test_what_was_trained_verifies_bit_for_bit_from_the_start_and_from_checkpoints(
    tmp_path: Path,
) -> None:
    made = await orm_bench(tmp_path)
    await learn(made, until=4)
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.first_divergence is None
    assert report.updates == 6
    assert await all_of(made, CheckpointSaved)
    assert (await audited(made)).defects == ()


async def test_a_reading_that_was_altered_after_it_was_trained_on_is_found(tmp_path: Path) -> None:
    made = await orm_bench(tmp_path)
    await learn(made, until=4)
    (planned,) = await plans_of(made, ORM)
    position = int(unpack_positions(planned.positions)[0])

    def alter(fact: EpisodeJudged) -> EpisodeJudged:
        assert fact.reading is not None
        other = msgspec.structs.replace(fact.reading, prompt_ids=pack_ids([11, 12, 13]))
        return msgspec.structs.replace(fact, reading=other)

    forge(made.log, position, alter)
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.first_divergence is not None
    assert report.first_divergence.position == position
    assert report.first_divergence.what == "inputs"
    found = await audited(made)
    assert any("reading is not the one that batch" in defect.what for defect in found.defects)


async def test_without_a_reading_or_a_truth_nothing_is_awaited_for_ever(tmp_path: Path) -> None:
    made = await orm_bench(tmp_path, groups=1)
    lost = (Member(1.0, 1, outcome="undecided"), Member(0.0, 1, abandoned=True), *informative()[:2])
    await tell(made.log, read_too(made.story.group(*lost), Random(1), unread=True))
    state = await folded(made.log)
    assert state.outcomes.awaited == {}


async def test_what_is_kept_is_bounded_and_nothing_is_where_it_is_off(tmp_path: Path) -> None:
    made = await orm_bench(tmp_path / "on", groups=12)
    await learn(made, until=2)
    outcomes = (await folded(made.log)).outcomes
    assert 0 < len(outcomes.successes) <= 16
    off = await orm_bench(tmp_path / "off", settings=orm_settings(orm_every=0))
    await learn(off, until=4)
    assert await plans_of(off, ORM) == []
    assert (await folded(off.log)).outcomes == ReplayBuffer().initial().outcomes


@given(tasks=st.sets(st.text("abcdef0123456789", min_size=4), min_size=1), share=st.floats(0, 0.5))
def test_a_task_held_out_of_a_small_share_is_held_out_of_every_larger_one(
    tasks: set[str], share: float
) -> None:
    for task in tasks:
        assert is_held_out(task, share=share) <= is_held_out(task, share=share + 0.3)
        assert not is_held_out(task, share=0.0)


def test_about_as_many_are_held_out_as_was_asked() -> None:
    held_out = sum(is_held_out(f"task_{number}", share=0.2) for number in range(2000))
    assert 330 < held_out < 470
