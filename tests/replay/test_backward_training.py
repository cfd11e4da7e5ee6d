"""The learned relabeler on schedule: batches of its own, from the lessons in its facts, recomputed bit for bit."""

from pathlib import Path
from random import Random

import msgspec
import pytest
import torch

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.domain.arrays import pack_ids, unpack_floats, unpack_ids, unpack_positions
from hindcast.core.models.auxiliary import TextGenerator
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import load_policy
from hindcast.core.rl.combined_state import RELABELER
from hindcast.core.rl.held_out import is_held_out
from hindcast.core.settings.schema import RelabelerSettings, Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeRelabeled,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.catalogue.verdict import BackwardReading, JudgeIdentity
from hindcast.events.log.memory import MemoryLog
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

EVERY, END = 6, 0
SAID = {1.0: [11, 12, END], 0.0: [13, END]}
"""What should be written of successes and of failures."""


def settings_of(**learner: object) -> Settings:
    usual = {
        "relabeler_every": EVERY,
        "relabeler_epochs": 1,
        "relabeler_batch": 3,
        "relabeler_held_out": 0.25,
    }
    chosen = settings_with(**(usual | {"relabeler_memory": 16} | learner))
    return chosen.model_copy(update={"relabeler": RelabelerSettings(kind="learned")})


def relabelled(told: list[Told], random: Random, *, needs_success: bool, lesson: bool = True) -> list[Told]:
    """The same story with what the relabeler says behind each end; some before, some after the verdict."""
    found: list[Told] = []
    waiting: list[Told] = []
    rewards = {one.fact.episode: one.fact.judgment.reward for one in told if hasattr(one.fact, "judgment")}
    for one in told:
        found += [one, *waiting]
        waiting = []
        if not isinstance(one.fact, EpisodeEnded):
            continue
        success = rewards.get(one.fact.episode, 0.0)
        ids = [random.choice(TOKENS) for _ in range(random.randrange(5, 20))]
        reading = BackwardReading(
            prompt_ids=pack_ids([*ids, 11 if success else 12]),
            truncated=False,
            model_version=None,
            written_ids=b"",
            dropped=0,
            lesson_ids=pack_ids(SAID[success]) if lesson else b"",
            needs_success=needs_success,
        )
        fact = EpisodeRelabeled(
            episode=one.fact.episode,
            task_id=one.fact.task_id,
            relabeler=JudgeIdentity(name="learned", version="2-v0"),
            relabels=(),
            failure="no version",
            reading=reading,
        )
        said = Told("relabeler", f"{fact.episode}.learned.2-v0", fact)
        if random.random() < 0.5:
            found.append(said)
        else:
            waiting.append(said)
    return found + waiting


async def bench(
    folder: Path, *, groups: int = 8, settings: Settings | None = None, needs_success: bool = False
) -> Bench:
    """A log with so many groups of four, all of them relabelled and judged, before any learner started."""
    configure(1)
    policy, blobs = write_tiny_policy(folder / "policy"), BlobStore(folder / "blobs")
    story, log, random = Story(policy), MemoryLog(RUN), Random(4)
    told = [story.start(blobs, settings or settings_of())]
    for index in range(groups):
        told += relabelled(
            story.group(*informative(steps=1 + index % 2)), random, needs_success=needs_success
        )
    await tell(log, told)
    return Bench(log, blobs, policy, story)


async def plans_of(made: Bench) -> list[BatchPlanned]:
    return [r.fact for r in await all_of(made, BatchPlanned) if r.fact.model == RELABELER]  # type: ignore[attr-defined]


async def test_it_has_batches_of_its_own_and_its_versions_are_published(tmp_path: Path) -> None:
    made = await bench(tmp_path)
    await learn(made, until=4)
    (planned,) = await plans_of(made)
    updates = [r.fact for r in await all_of(made, UpdateApplied) if r.fact.model == RELABELER]  # type: ignore[attr-defined]
    (published,) = [r.fact for r in await all_of(made, WeightsPublished) if r.fact.model == RELABELER]  # type: ignore[attr-defined]
    assert [update.minibatch for update in updates] == [0, 1]  # 6 lessons, once each, 3 in an update
    assert (published.version, published.update) == (1, 2)
    facts = {r.position: r.fact for r in await all_of(made, EpisodeRelabeled)}
    for position, part in zip(unpack_positions(planned.positions).tolist(), planned.episodes, strict=True):
        fact = facts[position]
        assert isinstance(fact, EpisodeRelabeled)
        assert fact.episode == part.episode
        assert not is_held_out(fact.task_id, share=0.25)


async def test_every_token_weighs_the_same_in_short_lessons_and_in_long_ones(tmp_path: Path) -> None:
    """Else the word that says that there is nothing outweighs the beginning of a goal."""
    made = await bench(tmp_path)
    await learn(made, until=4)
    first = next(
        r.fact
        for r in await all_of(made, UpdateApplied)
        if r.fact.model == RELABELER  # type: ignore[attr-defined]
    )
    (planned,) = await plans_of(made)
    count = unpack_ids(planned.minibatches).tolist()[0]
    facts = {r.position: r.fact for r in await all_of(made, EpisodeRelabeled)}
    readings = [facts[at].reading for at in unpack_positions(planned.positions).tolist()[:count]]  # type: ignore[attr-defined]
    lessons = [
        SampleToScore(unpack_ids(one.prompt_ids).tolist(), unpack_ids(one.lesson_ids).tolist())
        for one in readings
    ]
    assert len({len(one.action_ids) for one in lessons}) == 2  # both kinds are among them
    logprobs = torch.cat(
        score(load_policy(made.policy).model, lessons, temperature=1.0, tokens_per_forward=4096)
    )
    assert first.metrics["loss"] == pytest.approx(-float(logprobs.detach().mean()), rel=1e-4)  # type: ignore[attr-defined]
    tokens = [len(one.action_ids) for one in lessons]
    weights = unpack_floats(first.samples.weights).tolist()  # type: ignore[attr-defined]
    assert weights == pytest.approx([one / sum(tokens) for one in tokens])


async def test_where_nobody_teaches_only_successes_are_learned_from(tmp_path: Path) -> None:
    made = await bench(tmp_path, needs_success=True)
    known = (await folded(made.log)).lessons.known
    assert known
    assert all(episode.reward == 1.0 for episode in known)


async def test_what_it_learned_is_what_it_writes(tmp_path: Path) -> None:
    chosen = settings_of(relabeler_epochs=16, relabeler_rate=5e-3, relabeler_held_out=0.0)
    made = await bench(tmp_path, settings=chosen)
    await learn(made, until=2)
    (published,) = [r.fact for r in await all_of(made, WeightsPublished) if r.fact.model == RELABELER]  # type: ignore[attr-defined]
    model = TextGenerator(made.policy, made.blobs.path(published.weights), threads=1)  # type: ignore[attr-defined]
    random = Random(99)
    for success, last in ((1.0, 11), (0.0, 12)):
        prompts = [[random.choice(TOKENS) for _ in range(10)] for _ in range(8)]
        begun = [model.write([*ids, last], max_tokens=1)[0] for ids in prompts]
        assert begun.count(SAID[success][0]) >= 6


@pytest.mark.parametrize("killed_after", [2, 5])
async def test_a_learner_killed_anywhere_goes_on_as_if_nothing_had_been(
    tmp_path: Path, killed_after: int
) -> None:
    """Behind its plan and its weights."""
    made = await bench(tmp_path)
    whole = await copy_of(made, tmp_path / "whole")
    await learn(whole, until=4)
    with pytest.raises(Killed):
        await learn(made, until=4, log=Watched(made.log, killed_after, after=die))
    await learn(made, until=4)
    assert what_was_learned(await events_of(made.log)) == what_was_learned(await events_of(whole.log))


async def test_it_verifies_bit_for_bit_and_the_audit_holds_nothing_against_it(tmp_path: Path) -> None:
    made = await bench(tmp_path)
    await learn(made, until=4)
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.first_divergence is None
    assert report.updates == 6
    assert (await audited(made)).defects == ()


async def test_a_lesson_that_was_altered_after_it_was_trained_on_is_found(tmp_path: Path) -> None:
    made = await bench(tmp_path)
    await learn(made, until=4)
    (planned,) = await plans_of(made)
    position = int(unpack_positions(planned.positions)[0])

    def alter(fact: EpisodeRelabeled) -> EpisodeRelabeled:
        assert fact.reading is not None
        other = msgspec.structs.replace(fact.reading, lesson_ids=pack_ids([14, END]))
        return msgspec.structs.replace(fact, reading=other)

    forge(made.log, position, alter)
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.first_divergence is not None
    assert (report.first_divergence.position, report.first_divergence.what) == (position, "inputs")
    found = await audited(made)
    assert any("reading is not the one that batch" in defect.what for defect in found.defects)


async def test_what_was_written_by_nobody_is_a_defect(tmp_path: Path) -> None:
    made = await bench(tmp_path, groups=1)
    (position, *_) = [r.position for r in await all_of(made, EpisodeRelabeled)]

    def alter(fact: EpisodeRelabeled) -> EpisodeRelabeled:
        assert fact.reading is not None
        other = msgspec.structs.replace(fact.reading, written_ids=pack_ids([14]), dropped=1)
        return msgspec.structs.replace(fact, reading=other)

    forge(made.log, position, alter)
    found = [defect.what for defect in (await audited(made)).defects]
    assert any("written tokens and their model version" in what for what in found)
    assert any("no model was asked" in what for what in found)


async def test_without_a_lesson_or_a_verdict_nothing_is_awaited_for_ever(tmp_path: Path) -> None:
    made = await bench(tmp_path, groups=1)
    lost = (Member(1.0, 1, outcome="undecided"), Member(0.0, 1, abandoned=True), *informative()[:2])
    await tell(made.log, relabelled(made.story.group(*lost), Random(1), needs_success=False, lesson=False))
    assert (await folded(made.log)).lessons.awaited == {}


async def test_what_is_kept_is_bounded_and_nothing_is_where_it_is_off(tmp_path: Path) -> None:
    made = await bench(tmp_path / "on", groups=12)
    await learn(made, until=2)
    assert 0 < len((await folded(made.log)).lessons.known) <= 16
    off = await bench(tmp_path / "off", settings=settings_of(relabeler_every=0))
    await learn(off, until=4)
    assert await plans_of(off) == []
    lessons = (await folded(off.log)).lessons
    assert (lessons.known, lessons.awaited, lessons.fresh) == ([], {}, 0)
