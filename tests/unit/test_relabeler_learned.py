"""The relabeler that the run trains itself: lessons before its first version, goals of what it writes afterwards."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.relabelers.learned import (
    NO_PAGE,
    NO_VERSION,
    ONLY_LEARNED_FROM,
    LearnedRelabeler,
    LearnedVersions,
    goals_of,
)
from hindcast.actors.relabelers.rules import RuleRelabeler
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.models.auxiliary import TextGenerator, write_greedily
from hindcast.core.models.logprobs import SampleToScore, score_pack
from hindcast.core.models.policy import encode_weights, load_policy
from hindcast.core.prompts.achievement_prompt import Achievement, read_achievements
from hindcast.core.rl.combined_state import RELABELER
from hindcast.core.settings.schema import RelabelerSettings, Settings
from hindcast.events.catalogue import EpisodeEnded, EpisodeRelabeled, WeightsPublished
from hindcast.events.catalogue.verdict import BackwardReading
from hindcast.events.envelope import BlobRef, Fact
from hindcast.storage.blobs.store import BlobStore
from stories.relabel_story import TASKS, relabel_all
from stories.relabel_story import visit as visit  # a fixture
from stories.store_walk import TOKENIZER, Visit

pytestmark = pytest.mark.torch

SETTINGS = Settings(relabeler=RelabelerSettings(kind="learned", prompt_tokens=512, answer_tokens=160))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy"))


def told(visit: Visit, blobs: BlobStore, *, origin: str = "online", kept: bool = True) -> list[Fact]:
    """The visit's facts; its last page was kept, unless said otherwise."""
    *before, ended = visit.facts("ep_a", blobs, origin=origin)
    assert isinstance(ended, EpisodeEnded)
    page = blobs.put(msgspec.msgpack.encode(visit.pages[-1])) if kept else None
    return [*before, msgspec.structs.replace(ended, final_observation=page)]


def relabel(
    visit: Visit,
    folder: Path,
    policy: Path,
    *,
    teacher: bool = False,
    weights: bytes = b"",
    settings: Settings = SETTINGS,
    **facts: object,
) -> EpisodeRelabeled:
    """What the relabeler says of the visit; `weights`: of the version that was published before."""
    blobs = BlobStore(folder)
    versions = LearnedVersions(
        policy,
        blobs=blobs,
        pages=blobs,
        settings=settings,
        teacher=RuleRelabeler(max_goals=2) if teacher else None,
    )
    story: list[Fact] = []
    if weights:
        story.append(published(blobs.put(weights)))
    story += told(visit, blobs, **facts)  # type: ignore[arg-type]
    said = relabel_all(story, blobs, relabeler=versions, before=len(story))  # type: ignore[arg-type]
    (fact,) = said
    assert isinstance(fact, EpisodeRelabeled)
    return fact


def published(weights: BlobRef) -> WeightsPublished:
    return WeightsPublished(version=1, update=4, model=RELABELER, weights=weights)


def reading_of(fact: EpisodeRelabeled) -> BackwardReading:
    assert fact.reading is not None
    return fact.reading


def lesson_of(fact: EpisodeRelabeled) -> str:
    ids = unpack_ids(reading_of(fact).lesson_ids).tolist()
    assert ids[-1] == TOKENIZER.eos_token_id
    return str(TOKENIZER.decode(ids, skip_special_tokens=True))


def test_before_its_first_version_it_cannot_tell_and_keeps_the_lesson(
    visit: Visit, tmp_path: Path, policy: Path
) -> None:
    fact = relabel(visit, tmp_path, policy)
    assert (fact.relabels, fact.failure) == ((), NO_VERSION)
    assert (fact.relabeler.name, fact.relabeler.version) == ("learned", "2-v0")
    reading = reading_of(fact)
    assert (reading.model_version, reading.written_ids, reading.dropped) == (None, b"", 0)
    steps = len(visit.actions)
    said = read_achievements(lesson_of(fact), steps=steps)
    everything = tuple(range(1, steps + 1))
    assert said.achievements == (Achievement(visit.task.instruction, steps, everything),)
    assert reading.needs_success
    assert visit.task.instruction not in TOKENIZER.decode(unpack_ids(reading.prompt_ids).tolist())


def test_a_teacher_says_what_was_achieved_whether_the_episode_succeeded_or_not(
    visit: Visit, tmp_path: Path, policy: Path
) -> None:
    fact = relabel(visit, tmp_path, policy, teacher=True)
    said = read_achievements(lesson_of(fact), steps=len(visit.actions))
    assert [one.until_step for one in said.achievements] == [3, 7]
    assert said.achievements[1].instruction == visit.task.instruction
    assert not reading_of(fact).needs_success


def test_a_demonstration_is_a_lesson_and_nobody_is_asked(visit: Visit, tmp_path: Path, policy: Path) -> None:
    weights = encode_weights(tiny_model(policy, seed=1))
    fact = relabel(visit, tmp_path, policy, weights=weights, origin="demonstration")
    assert (fact.relabels, fact.failure) == ((), ONLY_LEARNED_FROM)
    assert lesson_of(fact)
    assert reading_of(fact).model_version is None


def test_without_the_page_it_ended_on_there_is_nothing_to_read(
    visit: Visit, tmp_path: Path, policy: Path
) -> None:
    fact = relabel(visit, tmp_path, policy, kept=False)
    assert (fact.failure, fact.reading) == (NO_PAGE, None)


def test_answers_that_leave_no_room_for_the_page_leave_this_episode_alone_without_relabels(
    visit: Visit, tmp_path: Path, policy: Path
) -> None:
    """A setting that does not fit one long episode must not stop the run."""
    narrow = SETTINGS.model_copy(
        update={"relabeler": SETTINGS.relabeler.model_copy(update={"prompt_tokens": 8})}
    )
    fact = relabel(visit, tmp_path, policy, settings=narrow)
    assert "relabeler.prompt_tokens = 8" in fact.failure
    assert (fact.relabels, fact.reading) == ((), None)


def test_what_an_untrained_model_writes_is_dropped_and_counted(
    visit: Visit, tmp_path: Path, policy: Path
) -> None:
    fact = relabel(visit, tmp_path, policy, weights=encode_weights(tiny_model(policy, seed=1)))
    reading = reading_of(fact)
    assert (fact.failure, fact.relabels, reading.model_version) == ("", (), 1)
    written = unpack_ids(reading.written_ids).tolist()
    assert 0 < len(written) <= SETTINGS.relabeler.answer_tokens
    text = TOKENIZER.decode(written, skip_special_tokens=True)
    assert reading.dropped == read_achievements(text, steps=len(visit.actions)).unreadable
    assert fact.relabeler.version == "2-v1"


def test_what_it_learned_to_write_becomes_relabels_that_the_learner_can_train_on(
    visit: Visit, tmp_path: Path, policy: Path
) -> None:
    lesson = reading_of(relabel(visit, tmp_path / "before", policy, teacher=True))
    model = tiny_model(policy, seed=2)
    sample = SampleToScore(unpack_ids(lesson.prompt_ids).tolist(), unpack_ids(lesson.lesson_ids).tolist())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(120):
        optimizer.zero_grad()
        (loss,) = (-one.mean() for one in score_pack(model, [sample], temperature=1.0))
        loss.backward()
        optimizer.step()
        if float(loss.detach()) < 0.02:
            break
    fact = relabel(visit, tmp_path / "after", policy, weights=encode_weights(model))
    assert reading_of(fact).written_ids == lesson.lesson_ids
    assert reading_of(fact).dropped == 0
    assert [(one.family, one.until_step) for one in fact.relabels] == [
        ("store/add_to_cart", 3),
        ("store/add_several", 7),
    ]
    for one in fact.relabels:
        assert len(one.prompts) == len(one.relevance) == one.until_step


def test_writing_with_a_cache_is_what_reading_anew_each_time_would_write(
    policy: Path, tmp_path: Path
) -> None:
    model = tiny_model(policy, seed=3).eval()
    path = tmp_path / "weights.safetensors"
    path.write_bytes(encode_weights(model))
    prompt, ends = list(range(5, 45)), load_policy(policy).stops
    written = TextGenerator(policy, path, threads=1).write(prompt, max_tokens=12)
    anew: list[int] = []
    while len(anew) < 12 and (not anew or anew[-1] not in ends):
        anew += write_greedily(model, [*prompt, *anew], ends=ends, max_tokens=1)
    assert written == anew


def test_nothing_more_is_written_once_nobody_waits_for_it(policy: Path) -> None:
    model, looks = tiny_model(policy, seed=3).eval(), 0

    def given_up() -> bool:
        nonlocal looks
        looks += 1
        return looks > 3

    assert len(write_greedily(model, range(5, 45), ends=(), max_tokens=10**6, given_up=given_up)) == 3


async def test_a_relabeler_that_is_out_of_time_ends_its_thread_and_lets_go_of_the_model(
    visit: Visit, tmp_path: Path, policy: Path
) -> None:
    writing = threading.Event()

    class Endless:
        def write(self, prompt_ids: object, *, max_tokens: int, given_up: Callable[[], bool]) -> list[int]:
            writing.set()
            while not given_up():
                time.sleep(0.001)
            return []

    blobs, reading = BlobStore(tmp_path), threading.Lock()
    relabeler = LearnedRelabeler(
        TOKENIZER,
        Endless(),  # type: ignore[arg-type]
        version=1,
        settings=SETTINGS.relabeler,
        pages=blobs,
        teacher=None,
        reading=reading,
    )
    *_, last = told(visit, blobs)
    assert isinstance(last, EpisodeEnded)
    episode = msgspec.structs.replace(visit.episode("ep_a", blobs), end=last)
    asking = asyncio.ensure_future(relabeler.goals(episode, visit.pages))
    assert await asyncio.to_thread(writing.wait, 60)
    assert reading.locked()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await asyncio.to_thread(reading.acquire, timeout=60)


def test_goals_are_those_that_the_store_would_ask_for_each_once(visit: Visit, tmp_path: Path) -> None:
    own = Achievement(visit.task.instruction, 7, (7,))
    again = Achievement(visit.task.instruction, 8, (8,))
    found = goals_of(visit.episode("ep_a", BlobStore(tmp_path)), [Achievement("Do it.", 1, (1,)), own, again])
    assert [(one.family, one.until_step) for one in found] == [("store/add_several", 7)]
    assert found[0].goal is not None
    assert found[0].goal["catalogue"] == TASKS.catalogue.name


def test_of_a_site_that_reads_no_goals_everything_is_dropped(visit: Visit, tmp_path: Path) -> None:
    episode = visit.episode("ep_a", BlobStore(tmp_path))
    elsewhere = msgspec.structs.replace(episode.task, environment="miniwob")
    told = [Achievement(visit.task.instruction, 7, (7,))]
    request = msgspec.structs.replace(episode.request, task=elsewhere)
    assert goals_of(msgspec.structs.replace(episode, request=request), told) == []
