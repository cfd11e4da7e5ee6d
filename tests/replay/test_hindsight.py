"""A run of hindsight supervised learning: relabelled, trained, gone on with, verified to the bit, audited, forged."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import STOP, relabelled

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeRelabeled,
    RunForked,
    SamplesSwept,
    StepTaken,
)
from hindcast.events.catalogue.verdict import RewrittenPrompt, StoppingStep
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.verify.verify import verify
from hindcast.storage.blobs.store import BlobStore
from stories.forged_log import audited
from stories.training_story import (
    RUN,
    Bench,
    Member,
    Story,
    Told,
    bench,
    events_of,
    folded,
    learn,
    settings_with,
    tell,
)

pytestmark = pytest.mark.torch

LEARNER: dict[str, Any] = {
    "algorithm": "hsl",
    "hsl_episodes": 2,
    "hsl_batch": 3,
    "hsl_memory": 4,
    "kl_coefficient": 0,
    "tokens_per_forward": 512,
}
SETTINGS = settings_with(**LEARNER)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Two demonstrations, then two batches of two episodes, a learner for each."""

    async def train() -> Bench:
        folder = tmp_path_factory.mktemp("run")
        policy = write_tiny_policy(folder / "policy")
        made = Bench(MemoryLog("r_test"), BlobStore(folder / "blobs"), policy, Story(policy))
        await tell(made.log, [made.story.start(made.blobs, SETTINGS)])
        for _ in range(2):
            await tell(made.log, made.story.group(Member(1.0, 2, origin="demonstration", version=-1)))
        for number in (1, 2):
            for _ in range(2):
                await tell(made.log, relabelled(made.story.group(Member(0.0, 3))))
            await learn(made, until=number)
        return made

    return asyncio.run(train())


async def test_a_batch_mixes_what_was_relabelled_with_what_was_given(trained: Bench) -> None:
    plans = [one.fact for one in await events_of(trained.log) if isinstance(one.fact, BatchPlanned)]
    assert len(plans) == 2
    for fact in plans:
        parts = fact.episodes
        assert [part.relabel is None for part in parts] == [False] * 3 + [True] * 2
        assert all(part.step_weights == ((1.0,), (1.0, 0.0, 1.0))[part.relabel or 0] for part in parts[:3])
        assert len(fact.consumed) == 2
    assert not {*plans[0].consumed} & {*plans[1].consumed}


async def test_what_is_trained_on_reads_what_the_relabeler_recorded(trained: Bench) -> None:
    steps = {
        one.position: one.fact for one in await events_of(trained.log) if isinstance(one.fact, StepTaken)
    }
    memory = (await folded(trained.log)).hindsight
    assert len(memory) == 4, "of eight that were relabelled"
    for one in memory:
        for sample in one.episode.samples:
            recorded = steps[sample.position]
            old = unpack_ids(recorded.prompt_ids).tolist()
            assert unpack_ids(sample.prompt_ids).tolist() == [*old[:2], 11, 12, 13, old[-1]]
            assert sample.action_ids == recorded.action_ids


async def test_it_verifies_to_the_bit_and_the_audit_holds_nothing_against_it(trained: Bench) -> None:
    report = await verify(trained.log, trained.blobs, policy=trained.policy)
    assert (report.identical, report.updates) == (True, 2)
    assert (await audited(trained)).defects_found == 0


async def test_where_demonstrations_stop_they_have_one_more_step_as_the_relabeler_wrote_it(
    tmp_path: Path,
) -> None:
    """Only the first of an episode's two goals has a later step to stop at."""
    made = await bench(
        tmp_path, batches=0, settings=settings_with(**LEARNER, options={"hsl_ends": "with_stop"})
    )
    for _ in range(2):
        await tell(made.log, relabelled(made.story.group(Member(0.0, 3))))
    await learn(made, until=1)
    (fact,) = [one.fact for one in await events_of(made.log) if isinstance(one.fact, BatchPlanned)]
    weights = {0: (1.0, 1.0), 1: (1.0, 0.0, 1.0)}
    assert all(part.step_weights == weights[part.relabel or 0] for part in fact.episodes)
    assert all(part.samples == len(part.step_weights or ()) for part in fact.episodes)
    assert {part.relabel for part in fact.episodes} == {0, 1}
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert (report.identical, report.updates) == (True, 1)
    assert (await audited(made)).defects_found == 0
    steps = {one.position: one.fact for one in await events_of(made.log) if isinstance(one.fact, StepTaken)}
    stops = [one.stop for one in (await folded(made.log)).hindsight]
    assert [stop is None for stop in stops] == [False, True] * 2
    for stop in stops:
        if stop is not None:
            old = unpack_ids(steps[stop.position].prompt_ids).tolist()
            assert unpack_ids(stop.prompt_ids).tolist() == [*old[:2], 11, 12, 13, old[-1]]
            assert (stop.action_ids, stop.answer_from, stop.allowed) == (STOP.action_ids, 1, b"")
            assert unpack_ids(stop.versions).tolist() == [-1] * 4
            assert unpack_floats(stop.logprobs).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("goal", "stop", "words"),
    [
        (1, STOP, "it stops after the last step"),
        (0, msgspec.structs.replace(STOP, action_ids=b""), "the answer that stops it has no tokens"),
        (
            0,
            msgspec.structs.replace(STOP, prompt=RewrittenPrompt(head=-1, ids=b"", tail=0)),
            "keeps less than nothing",
        ),
    ],
)
async def test_a_stop_that_cannot_be_is_a_defect(
    tmp_path: Path, goal: int, stop: StoppingStep, words: str
) -> None:
    made = await bench(tmp_path, batches=0, settings=SETTINGS)
    *told, last = relabelled(made.story.group(Member(0.0, 3)))
    assert isinstance(last.fact, EpisodeRelabeled)
    relabels = list(last.fact.relabels)
    relabels[goal] = msgspec.structs.replace(relabels[goal], stop=stop)
    await tell(
        made.log, [*told, last._replace(fact=msgspec.structs.replace(last.fact, relabels=tuple(relabels)))]
    )
    (defect,) = (await audited(made)).defects
    assert f"goal {goal} of " in defect.what
    assert words in defect.what


async def test_what_it_led_to_is_what_reinforcement_learning_would_start_from(trained: Bench) -> None:
    state = await folded(trained.log)
    assert (state.cloned_version, state.version) == (2, 2)


async def forked(made: Bench, settings: Settings) -> None:
    """The same log, as a fork of what it was so far goes on with it."""
    state = await folded(made.log)
    start = msgspec.structs.replace(state.started, settings=settings.model_dump(mode="json"))
    fact = RunForked(parent=RUN, at_position=state.position, parent_digest=state.digest.value, start=start)
    await tell(made.log, [Told("app", RUN, fact)])


async def test_a_fork_learns_from_what_was_relabelled_before_and_waits_for_nothing_that_never_comes(
    tmp_path: Path,
) -> None:
    made = await bench(tmp_path, batches=0, settings=settings_with(group_batch=4))
    await tell(made.log, relabelled(made.story.group(Member(0.0, 3), Member(1.0, 2))))
    await tell(made.log, made.story.group(Member(0.0, 3), Member(1.0, 1)))
    assert set((await folded(made.log)).pending) == {"ep_group_0_0", "ep_group_0_1"}
    await forked(made, SETTINGS)
    await tell(made.log, relabelled(made.story.group(Member(0.0, 3), Member(1.0, 2))))
    await learn(made, until=2)
    facts = [one.fact for one in await events_of(made.log)]
    assert [fact.consumed for fact in facts if isinstance(fact, BatchPlanned)] == [
        ("ep_group_0_0", "ep_group_0_1"),
        ("ep_group_2_0", "ep_group_2_1"),
    ]
    assert [(fact.reason, fact.episodes) for fact in facts if isinstance(fact, SamplesSwept)] == [
        ("unrelabelled", ("ep_group_1_0", "ep_group_1_1"))
    ]
    state = await folded(made.log)
    assert (state.episodes, state.pending) == ({}, {})
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical


async def test_relabels_are_let_go_of_with_their_episodes_whatever_is_learned(tmp_path: Path) -> None:
    made = await bench(tmp_path, batches=0, settings=settings_with(group_batch=1, minibatches=1))
    await tell(made.log, relabelled(made.story.group(Member(0.0, 3), Member(1.0, 2))))
    await tell(made.log, relabelled(made.story.group(Member(1.0, 3), Member(1.0, 2))))
    await tell(made.log, relabelled(made.story.group(Member(0.0, 2, outcome="undecided"), Member(1.0, 2))))
    assert len((await folded(made.log)).pending) == 6
    await tell(made.log, made.story.group(Member(0.0, 3), Member(1.0, 2)))
    await learn(made, until=2)
    assert (await folded(made.log)).pending == {}


async def test_a_goal_that_nobody_found_is_not_trained_on_unnoticed(trained: Bench, tmp_path: Path) -> None:
    """The same plan in another log, in which no relabeler spoke."""
    log = MemoryLog("r_test")
    told = [one for one in await events_of(trained.log) if not isinstance(one.fact, EpisodeRelabeled)]
    await tell(
        log,
        [
            Told(one.envelope.producer.split(".")[0], one.envelope.entity, msgspec.structs.replace(one.fact))
            for one in told
        ],
    )
    report = await audited(trained._replace(log=log))
    assert any("which no relabeler found" in defect.what for defect in report.defects)
