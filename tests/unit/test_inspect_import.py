"""Logs of Inspect as text episodes: what becomes of a sample, what is refused, and how a score becomes a verdict."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from hindcast.actors.episodes.recorder import Abandoned, Ended
from hindcast.actors.judges.inspect_score import InspectOptions, InspectScoreJudge
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.app.demonstrations.pending import DemonstratedEpisode
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.documents import ImportRefused, read_documents
from hindcast.app.imports.import_documents import try_out
from hindcast.app.imports.imported_episode import episode_of, request_of_conversation
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.structs import decode_msgpack
from stories.inspect_logs import HEADER, WITH_TOOL, said, sample, write_log

pytestmark = pytest.mark.torch

TEXT = resolve(environment={}, overrides=['actors.answer_format="text"']).settings


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(policy_folder(TEXT.policy.base))


def conversations(file: Path) -> list[Conversation]:
    found = [read.document for read in read_documents(file, "inspect")]
    assert all(isinstance(one, Conversation) for one in found)
    return found  # type: ignore[return-value]


def imported(file: Path, tokenizer: Any) -> list[DemonstratedEpisode]:
    return [asyncio.run(episode_of(one, TEXT, tokenizer)) for one in conversations(file)]


def lines_of(shown: DemonstratedEpisode, blob: Any) -> list[str]:
    return [node.text for node in decode_msgpack(shown.blobs[blob], Page).nodes if node.kind == "text"]


def test_each_answer_is_a_step_with_the_messages_before_it(tmp_path: Path, tokenizer: Any) -> None:
    (shown,) = imported(write_log(tmp_path / "a.eval", WITH_TOOL), tokenizer)
    first, second = shown.steps
    assert lines_of(shown, first.observation) == ["Use the tool.", "What is 1+1?"]
    assert lines_of(shown, second.observation) == ["2"]
    assert first.answer == 'I add.\n<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": 1}}\n</tool_call>'
    assert second.answer == "<think>easy</think>\nIt is 2"
    prompt = tokenizer.decode(unpack_ids(second.prompt_ids).tolist())
    assert ["Use the tool." in prompt, "I add." in prompt, "It is 2" in prompt] == [True, True, False]
    for step in shown.steps:
        assert step.result == "ok"
        ids = unpack_ids(step.action_ids).tolist()
        assert tokenizer.decode(ids, skip_special_tokens=True) == step.answer
        assert set(unpack_ids(step.versions).tolist()) == {-1}, "no policy of the run sampled it"
    assert isinstance(shown.ended, Ended)
    assert (shown.ended.reason, shown.ended.duration_ms, shown.instruction) == (
        "done",
        1500.0,
        "What is 1+1?",
    )
    task = shown.request.task
    assert (task.full_family, task.goal["sample"], task.goal["target"]) == ("agent/school_sums", "a", "2")


def test_answers_that_the_dataset_gives_belong_to_the_prompt(tmp_path: Path, tokenizer: Any) -> None:
    few = sample(
        3,
        said("user", "2+2?"),
        said("assistant", "4", source="input"),
        said("user", "1+1?"),
        said("assistant", "2"),
    )
    (shown,) = imported(write_log(tmp_path / "a.eval", few), tokenizer)
    assert [step.answer for step in shown.steps] == ["2"]
    assert lines_of(shown, shown.steps[0].observation) == ["2+2?", "4", "1+1?"]
    assert shown.request.task.seed == 3


def test_a_sample_that_does_not_count_is_no_failure(tmp_path: Path, tokenizer: Any) -> None:
    lost = sample(
        "lost", error={"message": "the sandbox died", "traceback": "", "traceback_ansi": ""}, scores={}
    )
    wrong = sample("wrong", invalidation={"author": "me", "reason": "the answer leaked"})
    mute = sample("mute", said("user", "What is 1+1?"))
    ends = [one.ended for one in imported(write_log(tmp_path / "a.eval", lost, wrong, mute), tokenizer)]
    assert [(end.detail, end.steps) for end in ends if isinstance(end, Abandoned)] == [
        ("the sandbox died", 1),
        ("invalidated: the answer leaked", 1),
        ("the log has no answer of the model", 0),
    ]


def test_a_limit_truncates_an_episode_and_the_last_messages_are_its_final_page(
    tmp_path: Path, tokenizer: Any
) -> None:
    cut = sample(
        "a",
        said("user", "What is 1+1?"),
        said("assistant", "", tool_calls=[WITH_TOOL["messages"][2]["tool_calls"][0]]),
        {"role": "tool", "content": "", "error": {"type": "timeout", "message": "too slow"}},
        limit={"type": "message", "limit": 3},
    )
    (shown,) = imported(write_log(tmp_path / "a.eval", cut), tokenizer)
    assert isinstance(shown.ended, Ended)
    assert (shown.ended.reason, shown.ended.evidence.probes["limit"]) == ("max_steps", "message")
    assert lines_of(shown, shown.ended.final_observation) == ["too slow"]


def test_the_compression_of_inspect_is_read(tmp_path: Path) -> None:
    packed = write_log(tmp_path / "a.eval", WITH_TOOL, sample(2), zstandard=True)
    assert conversations(packed) == conversations(write_log(tmp_path / "b.eval", WITH_TOOL, sample(2)))


def test_epochs_of_a_sample_are_episodes_of_one_task(tmp_path: Path) -> None:
    file = write_log(tmp_path / "a.eval", sample("a"), sample("a", epoch=2))
    one, other = (request_of_conversation(found, TEXT) for found in conversations(file))
    assert one.task == other.task
    assert one.episode != other.episode


IMAGE = [{"type": "image", "image": "data:image/png;base64,"}]


@pytest.mark.parametrize(
    ("content", "header", "why"),
    [
        (sample("a", said("user", IMAGE)), HEADER, r"messages\[0\]\.content\[0\]: a part of type 'image'"),
        (sample("a", total_time="long"), HEADER, "it is no sample of Inspect"),
        (sample("a", output={"completion": 3}), HEADER, "it is no sample of Inspect"),
        (sample("a", said("assistant", "\ud800")), HEADER, "it is no sample of Inspect"),
        (sample("a", epoch=2**70), HEADER, "an integer does not fit into 64 bits"),
        (sample("a", messages=None), HEADER, "it is no sample of Inspect"),
        (sample("a"), HEADER | {"version": 1}, "version: 1 is not 2"),
        (sample("a"), [], r"header\.json: expected an object"),
        (sample("a"), {"version": 2}, "it is no sample of Inspect"),
    ],
)
def test_what_cannot_be_imported_is_named(tmp_path: Path, content: Any, header: Any, why: str) -> None:
    file = write_log(tmp_path / "a.eval", content, header=header)
    with pytest.raises(ImportRefused, match=rf"a\.eval: .*{why}.*Nothing was appended"):
        conversations(file)


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.eval").write_bytes(b"PK no")
    with pytest.raises(ImportRefused, match=r"a\.eval: this is no log of Inspect"):
        conversations(tmp_path / "a.eval")
    damaged = write_log(tmp_path / "b.eval", sample("a"), zstandard=True)
    content = bytearray(damaged.read_bytes())
    content[60:80] = bytes(20)
    damaged.write_bytes(content)
    with pytest.raises(ImportRefused, match=r"b\.eval: samples/a_epoch_1\.json: it cannot be read"):
        conversations(damaged)


def test_a_run_whose_settings_cannot_hold_it_is_named(tmp_path: Path) -> None:
    file = write_log(tmp_path / "a.eval", WITH_TOOL)
    actions = resolve(environment={}).settings
    with pytest.raises(ImportRefused, match=r"actors\.answer_format = 'text'"):
        asyncio.run(try_out(file, actions, format_name="inspect"))
    short = resolve(environment={}, overrides=['actors.answer_format="text"', "actors.max_prompt_tokens=16"])
    with pytest.raises(ImportRefused, match=r"tokens, 16 are allowed\. .*actors\.max_prompt_tokens"):
        asyncio.run(try_out(file, short.settings, format_name="inspect"))


def verdict(scores: Any, *, scorer: str = "") -> tuple[str, float]:
    task = Task(environment="agent", family="f", seed=1, instruction="", goal={}, max_steps=1)
    evidence = Evidence(answer="2", final_url="", probes=json.loads(json.dumps({"scores": scores})))
    judge = InspectScoreJudge(InspectOptions(scorer=scorer))
    judgment = asyncio.run(judge.judge(JudgedEpisode(task, evidence, None))).judgment  # type: ignore[arg-type]
    return judgment.outcome, judgment.reward


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("C", ("success", 1.0)),
        ("P", ("success", 0.5)),
        ("I", ("failure", 0.0)),
        ("N", ("failure", 0.0)),
        (True, ("success", 1.0)),
        (0.25, ("failure", 0.25)),
        ("0.75", ("success", 0.75)),
        ("yes", ("success", 1.0)),
        (math.nan, ("undecided", 0.0)),
        (None, ("undecided", 0.0)),
        (7, ("undecided", 0.0)),
        ("good", ("undecided", 0.0)),
        ({"style": 1}, ("undecided", 0.0)),
    ],
)
def test_a_score_becomes_a_verdict(value: Any, expected: tuple[str, float]) -> None:
    assert verdict({"includes": {"value": value}}) == expected


def test_another_scorer_is_another_version_of_the_judge() -> None:
    scores = {"includes": {"value": "C"}, "strict": {"value": "I"}}
    assert verdict(scores) == ("success", 1.0)
    assert verdict(scores, scorer="strict") == ("failure", 0.0)
    assert verdict(scores, scorer="none") == verdict({}) == ("undecided", 0.0)
    versions = {InspectScoreJudge(InspectOptions(scorer=name)).identity.version for name in ("", "strict")}
    assert len(versions) == 2
