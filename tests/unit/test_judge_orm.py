"""The judge that the run trains itself: what it reads, when it says success, and which version speaks."""

import asyncio
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.judges.base import Verdict, reach_verdict
from hindcast.actors.judges.judged_episode import EpisodeTranscript, read_transcript
from hindcast.actors.judges.orm import OrmVersions, judgment_of
from hindcast.actors.judges.role import run_judge
from hindcast.actors.published_versions import find_newest
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.errors import ModelFileError, SettingsError
from hindcast.core.models.auxiliary import OutcomeModel
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import encode_weights, save_weights
from hindcast.core.prompts.verdict_prompt import (
    NO,
    PROMPT_DIGEST,
    QUESTION,
    YES,
    answer_ids,
    build_verdict_prompt,
)
from hindcast.core.rl.combined_state import ORM
from hindcast.events.catalogue import (
    EpisodeEnded,
    EpisodeJudged,
    WeightsPublished,
)
from hindcast.events.envelope import BlobRef
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from stories.curriculum_story import settings_of
from stories.judge_story import INSTRUCTION, append, judged_episode, page, publisher, story_of, verdict_of

pytestmark = pytest.mark.torch

TOKENIZER: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(base_policy_folder())
SETTINGS = settings_of(judge={"judges": (ORM,), "timeout_s": 120})
APPENDED_S = 60


@given(
    words=st.integers(0, 300),
    answers=st.lists(st.text("abc <|>", max_size=30), max_size=8),
    max_tokens=st.integers(200, 400),
)
def test_truncation_cuts_the_page_and_never_the_question(
    words: int, answers: list[str], max_tokens: int
) -> None:
    prompt = build_verdict_prompt(
        TOKENIZER, instruction=INSTRUCTION, answers=answers, page=page(words), max_tokens=max_tokens
    )
    text = TOKENIZER.decode(prompt.ids)
    assert len(prompt.ids) <= max_tokens
    assert text.startswith(f"<|user|>Task Instruction: {INSTRUCTION}")
    assert text.endswith(f"{QUESTION}<|end|><|assistant|>")
    shown = f"word {words - 1}{QUESTION}" if words else f"page Cart{QUESTION}"
    assert (shown in text) or prompt.truncated
    assert prompt.truncated or all(answer.strip() in text for answer in answers)


def test_a_question_that_leaves_no_room_for_the_page_is_refused() -> None:
    with pytest.raises(SettingsError, match="leaves none of 40"):
        build_verdict_prompt(TOKENIZER, instruction=INSTRUCTION * 9, answers=[], page=page(), max_tokens=40)


def test_words_that_begin_alike_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = answer_ids(TOKENIZER)
    assert TOKENIZER.decode([ids.yes]) == YES[0]
    assert TOKENIZER.decode([ids.no]) == NO[0]
    monkeypatch.setattr("hindcast.core.prompts.verdict_prompt.NO", "YEAH")
    with pytest.raises(ModelFileError, match="with the same token"):
        answer_ids(TOKENIZER)


@given(probability=st.floats(0, 1), threshold=st.floats(0.01, 0.99))
def test_success_begins_at_the_threshold(probability: float, threshold: float) -> None:
    judgment = judgment_of(probability, threshold=threshold)
    assert (judgment.outcome == "success") == (probability >= threshold)
    assert judgment.reward == float(judgment.outcome == "success")
    assert judgment_of(threshold, threshold=threshold).outcome == "success"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy"))


def test_the_probability_is_that_of_yes_among_yes_and_no(folder: Path, tmp_path: Path) -> None:
    model = tiny_model(folder, seed=5).eval()
    weights = tmp_path / "orm.safetensors"
    save_weights(model, weights)
    prompt = build_verdict_prompt(
        TOKENIZER, instruction=INSTRUCTION, answers=["done"], page=page(), max_tokens=256
    )
    with torch.no_grad():
        logits = model(torch.tensor([prompt.ids])).logits[0, -1].double()
    yes, no = answer_ids(TOKENIZER)
    by_hand = logits[yes].exp() / (logits[yes].exp() + logits[no].exp())
    found = OutcomeModel(folder, weights, threads=1).probability(prompt.ids)
    assert found == pytest.approx(float(by_hand), abs=1e-5)
    assert 0.01 < found < 0.99, "an answer that says something"


async def test_a_story_has_the_answers_of_its_episode_alone_in_order(tmp_path: Path) -> None:
    blobs, log = BlobStore(tmp_path), MemoryLog("r")
    one, other = story_of("ep_a", blobs, answers=300), story_of("ep_b", blobs)
    await append(log, *one[:5], *other, *one[5:])
    ended = one[-1]
    assert isinstance(ended, EpisodeEnded)
    last = (await log.identity()).last
    story = await read_transcript(log, blobs, ended, before=last)
    assert story is not None
    assert story.instruction == INSTRUCTION
    assert story.answers == tuple(f"answer {index} of ep_a" for index in range(300))
    assert story.page == page(5)
    assert await read_transcript(MemoryLog("r"), blobs, ended, before=last) is None


async def test_the_newest_model_is_found_however_long_ago_it_was_published(tmp_path: Path) -> None:
    log, blobs = MemoryLog("r"), BlobStore(tmp_path)
    assert await find_newest(log, ORM, until=0) is None
    weights = blobs.put(b"weights")
    versions = [
        WeightsPublished(version=version, model=model, weights=weights, update=version)
        for version, model in ((1, ORM), (2, ORM), (9, "policy"))
    ]
    await append(log, *story_of("ep_a", blobs), *versions, *story_of("ep_b", blobs, answers=2100))
    found = await find_newest(log, ORM, until=(await log.identity()).last)
    assert found is not None
    assert (found.model, found.version) == (ORM, 2)


async def test_a_model_that_was_let_go_of_does_not_keep_the_judge_from_reading(
    folder: Path, tmp_path: Path
) -> None:
    """As in a fork from a place whose weights the parent has released: else no verdict would ever come."""
    blobs, log = BlobStore(tmp_path), MemoryLog("r")
    gone = WeightsPublished(version=3, model=ORM, weights=BlobRef("0" * 64, 10), update=12)
    await append(log, gone)
    judge = await OrmVersions(folder, blobs=blobs, settings=SETTINGS).begin(log)
    opinion = await verdict_of(judge, EpisodeTranscript(instruction=INSTRUCTION, answers=(), page=page()))
    assert (judge.version, opinion.judgment.outcome) == (None, "undecided")
    assert reading_of(opinion)


def reading_of(opinion: Verdict) -> list[int]:
    assert opinion.reading is not None
    return unpack_ids(opinion.reading.prompt_ids).tolist()


async def test_without_a_page_nothing_is_read_and_nothing_decided(folder: Path, tmp_path: Path) -> None:
    judge = await OrmVersions(folder, blobs=BlobStore(tmp_path), settings=SETTINGS).begin(MemoryLog("r"))
    transcript = EpisodeTranscript(instruction=INSTRUCTION, answers=(), page=None)
    opinion = await reach_verdict(judge, judged_episode(transcript=transcript), timeout_s=60)
    assert opinion.judgment.outcome == "undecided"
    assert "not kept any more" in opinion.judgment.reason
    assert opinion.reading is None


async def test_each_verdict_names_the_version_that_spoke_and_what_it_read(
    folder: Path, tmp_path: Path
) -> None:
    """Before the first version nothing is decided; a version that is published meanwhile speaks from then on."""
    blobs, log, stop = BlobStore(tmp_path / "blobs"), MemoryLog("r"), asyncio.Event()
    gone = story_of("ep_gone", blobs, gone=True)
    first, second = story_of("ep_a", blobs), story_of("ep_b", blobs)
    weights = blobs.put(encode_weights(tiny_model(folder, seed=5)))
    published = WeightsPublished(version=3, model=ORM, weights=weights, update=12)
    shelf = OrmVersions(folder, blobs=blobs, settings=SETTINGS)
    adopted = asyncio.Event()
    begin_following = shelf.follow

    async def follow(log: MemoryLog, replace: object) -> None:
        def told(judge: object) -> None:
            replace(judge)  # type: ignore[operator]
            adopted.set()

        await begin_following(log, told)

    shelf.follow = follow  # type: ignore[method-assign, assignment]
    async with publisher(log, "judge.1") as mine, asyncio.TaskGroup() as tasks:
        queue = await log.open_queue("judges", family="episode_end")
        tasks.create_task(
            run_judge(
                log=log,
                publisher=mine,
                queue=queue,
                settings=SETTINGS,
                blobs=blobs,
                stop=stop,
                judges={},
                shelf=shelf,
            )
        )
        await append(log, *first, *gone)
        await log.wait_for_growth(len(first) + len(gone) + 1, timeout_s=APPENDED_S)
        await append(log, published)
        async with asyncio.timeout(APPENDED_S):
            await adopted.wait()
        await append(log, *second)
        await log.wait_for_growth(len(first) + len(gone) + len(second) + 3, timeout_s=APPENDED_S)
        stop.set()
    said = {fact.episode: fact for fact in await verdicts(log)}
    assert {name: (fact.judge.version, fact.judge.prompt_digest) for name, fact in said.items()} == {
        "ep_a": ("2-v0", PROMPT_DIGEST),
        "ep_gone": ("2-v0", PROMPT_DIGEST),
        "ep_b": ("2-v3", PROMPT_DIGEST),
    }
    prompt = build_verdict_prompt(
        TOKENIZER,
        instruction=INSTRUCTION,
        answers=["answer 0 of ep_a", "answer 1 of ep_a"],
        page=page(5),
        max_tokens=SETTINGS.judge.orm_prompt_tokens,
    )
    before, after = said["ep_a"].reading, said["ep_b"].reading
    assert before is not None
    assert after is not None
    assert said["ep_gone"].reading is None
    assert unpack_ids(before.prompt_ids).tolist() == prompt.ids
    assert (before.model_version, before.probability) == (None, None)
    assert said["ep_a"].judgment.outcome == "undecided"
    assert after.model_version == 3
    assert after.probability is not None
    assert said["ep_b"].judgment == judgment_of(after.probability, threshold=0.5)


async def verdicts(log: MemoryLog) -> list[EpisodeJudged]:
    return [recorded.fact async for recorded in read(log) if isinstance(recorded.fact, EpisodeJudged)]
