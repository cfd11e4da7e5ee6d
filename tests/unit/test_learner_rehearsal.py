"""Rehearsal: remembered successes are imitated beside what is compared, and move nothing of it."""

from pathlib import Path

import numpy as np
import pytest

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.domain.arrays import unpack_floats
from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BatchPlanned, SamplesSwept, UpdateApplied
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import EpisodePart
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.verify.verify import verify
from hindcast.storage.blobs.store import BlobStore
from stories.training_story import (
    RUN,
    Bench,
    Member,
    Story,
    Told,
    events_of,
    folded,
    informative,
    learn,
    settings_with,
    tell,
)

pytestmark = pytest.mark.torch

AGREED = (Member(1.0, 2), Member(1.0, 1), Member(1.0, 3), Member(1.0, 1))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy"))


def rehearsing(**learner: object) -> Settings:
    return settings_with(rehearsal_episodes=2, group_batch=1, minibatches=2, **learner)


async def told(folder: Path, policy: Path, settings: Settings, *groups: tuple[Member, ...]) -> MemoryLog:
    """Groups in a log, with what agreed swept as the learner would."""
    story, log = Story(policy), MemoryLog(RUN)
    facts = [story.start(BlobStore(folder), settings)]
    for members in groups:
        facts += story.group(*members)
    await tell(log, facts)
    return log


def as_learner(fact: SamplesSwept) -> Told:
    return Told("learner", "samples", fact)


async def test_successes_of_a_group_that_agreed_are_rehearsed_in_every_minibatch(
    tmp_path: Path, policy: Path
) -> None:
    settings = rehearsing()
    log = await told(tmp_path, policy, settings, AGREED, informative())
    swept = sweep(await folded(log), settings)
    assert [fact.reason for fact in swept] == ["agreed"]
    await tell(log, [as_learner(swept[0])])
    made = plan(await folded(log), settings)
    assert made is not None
    flags = [episode.rehearsed for episode in made.episodes]
    assert flags == [False, False, True, True] * 2
    rehearsed = [episode for episode in made.episodes if episode.rehearsed]
    assert {episode.group for episode in rehearsed} == {"group_0"}
    assert len({episode.episode for episode in rehearsed}) == 4
    assert {episode.advantage for episode in rehearsed} == {0.0}


async def test_nothing_is_remembered_or_rehearsed_when_it_is_off(tmp_path: Path, policy: Path) -> None:
    settings = settings_with(group_batch=1, minibatches=2)
    log = await told(tmp_path, policy, settings, AGREED, informative())
    (swept,) = sweep(await folded(log), settings)
    await tell(log, [as_learner(swept)])
    state = await folded(log)
    made = plan(state, settings)
    assert made is not None
    assert not any(episode.rehearsed for episode in made.episodes)
    assert state.successes == {}


async def test_a_success_is_not_rehearsed_in_its_own_batch(tmp_path: Path, policy: Path) -> None:
    settings = rehearsing()
    log = await told(tmp_path, policy, settings, informative())
    made = plan(await folded(log), settings)
    assert made is not None
    assert not any(episode.rehearsed for episode in made.episodes)


async def test_the_latest_successes_of_a_family_are_remembered_and_failures_never(
    tmp_path: Path, policy: Path
) -> None:
    settings = rehearsing(rehearsal_memory=3)
    failures = tuple(Member(0.0, 1) for _ in range(4))
    log = await told(tmp_path, policy, settings, AGREED, failures, AGREED)
    state = await folded(log)
    for fact in sweep(state, settings):
        await tell(log, [as_learner(fact)])
    remembered = (await folded(log)).successes
    assert list(remembered) == ["store/find"]
    assert [episode.id for episode in remembered["store/find"]] == [f"ep_group_2_{i}" for i in (1, 2, 3)]


def test_rehearsed_episodes_move_no_share_of_those_that_are_compared() -> None:
    compared = [
        EpisodePart(EpisodeTokens("g", (2, 4)), succeeded=True),
        EpisodePart(EpisodeTokens("g", (3,)), succeeded=False),
    ]
    old = EpisodePart(EpisodeTokens("h", (5, 2)), succeeded=True, rehearsed=True)
    algorithm = loss_for(settings_with(cloning_coefficient=0.3, rehearsal_coefficient=0.5).learner)
    shares, cloning = algorithm.shares(compared)
    with_old, cloning_with_old = algorithm.shares([*compared, old])
    assert with_old == pytest.approx([*shares, 0.0, 0.0])
    # one rehearsed episode of two steps: coefficient / (1 episode * 2 steps * tokens of the step)
    assert cloning_with_old == pytest.approx([*cloning, 0.5 / 10, 0.5 / 4])


async def test_an_update_with_rehearsal_is_applied_reported_and_planned_beforehand(
    tmp_path: Path, policy: Path
) -> None:
    settings = rehearsing()
    log = await told(tmp_path, policy, settings, AGREED, informative())
    await learn(Bench(log, BlobStore(tmp_path), policy, Story(policy)), until=2)
    facts = [recorded.fact for recorded in await events_of(log)]
    (made,) = (fact for fact in facts if isinstance(fact, BatchPlanned))
    updates = [fact for fact in facts if isinstance(fact, UpdateApplied)]
    assert any(isinstance(fact, SamplesSwept) and fact.reason == "agreed" for fact in facts)
    assert len(updates) == 2
    first = updates[0]
    rehearsed = sum(e.samples for e in made.episodes[:4] if e.rehearsed)
    assert first.metrics["rehearsed_samples"] == rehearsed > 0
    assert first.metrics["rehearsal_loss"] > 0
    advantages = unpack_floats(first.samples.advantages)
    weights = unpack_floats(first.samples.weights)
    assert np.all(advantages[-rehearsed:] == 0)
    assert float(weights[-rehearsed:].sum()) == pytest.approx(
        settings.learner.options["rehearsal_coefficient"]
    )


async def test_epochs_and_rehearsal_are_recomputed_bit_for_bit(tmp_path: Path, policy: Path) -> None:
    settings = rehearsing(epochs=2)
    log = await told(tmp_path, policy, settings, AGREED, informative(), informative())
    blobs = BlobStore(tmp_path)
    await learn(Bench(log, blobs, policy, Story(policy)), until=8)
    updates = [recorded.fact for recorded in await events_of(log) if isinstance(recorded.fact, UpdateApplied)]
    assert [update.minibatch for update in updates] == [0, 1, 2, 3] * 2
    # the second epoch compares with where the batch began, so its ratios have moved away from 1
    assert updates[0].metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert updates[2].metrics["ratio_mean"] != pytest.approx(1.0, abs=1e-4)
    report = await verify(log, blobs, policy=policy)
    assert report.identical
    assert report.updates == 8


async def test_a_success_swept_from_a_group_that_is_not_used_up_is_rehearsed_with_its_steps(
    tmp_path: Path, policy: Path
) -> None:
    settings = rehearsing()
    story, log = Story(policy), MemoryLog(RUN)
    facts = [story.start(BlobStore(tmp_path), settings)]
    facts += story.group(*informative())
    facts += story.group(*informative())
    await tell(log, facts)
    await tell(
        log, [as_learner(SamplesSwept(episodes=("ep_group_1_0", "ep_group_1_2"), reason="stale", version=0))]
    )
    made = plan(await folded(log), settings)
    assert made is not None
    assert {episode.episode for episode in made.episodes if episode.rehearsed} == {
        "ep_group_1_0",
        "ep_group_1_2",
    }
    await tell(log, [Told("learner", "batch_0", made)])
    batch = (await folded(log)).batch
    assert batch is not None
    assert len(batch.samples) == sum(episode.samples for episode in made.episodes)
