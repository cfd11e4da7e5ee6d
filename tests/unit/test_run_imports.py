"""Runs of other systems as text episodes: groups, versions, rewards and token ids. The traces are written by verifiers 0.4.0."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from atif import Trajectory

from hindcast.actors.episodes.recorder import Abandoned, Ended
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.recorded_reward import RecordedOptions, RecordedRewardJudge
from hindcast.app.demonstrations.pending import DemonstratedEpisode
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.documents import ImportRefused, read_documents
from hindcast.app.imports.imported_episode import episode_of, request_of_conversation
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.storage.readmodel.outcome_counts import Tally, families_by_version, training_origin
from stories.gym_rollouts import rollout, write_rollouts

pytestmark = pytest.mark.torch

TEXT = resolve(environment={}, overrides=['actors.answer_format="text"']).settings
TRACES = Path(__file__).parents[1] / "stories" / "verifiers_traces.jsonl"


def read(file: Path, format_name: str) -> list[Conversation]:
    return [
        one.document for one in read_documents(file, format_name) if isinstance(one.document, Conversation)
    ]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(policy_folder(TEXT.policy.base))


def imported(file: Path, format_name: str, tokenizer: Any) -> list[DemonstratedEpisode]:
    return [asyncio.run(episode_of(one, TEXT, tokenizer)) for one in read(file, format_name)]


def outcome(evidence: Evidence, options: RecordedOptions | None = None) -> tuple[str, float]:
    task = Task(environment="agent", family="f", seed=1, instruction="", goal={}, max_steps=1)
    judge = RecordedRewardJudge(options or RecordedOptions())
    judgment = asyncio.run(judge.judge(JudgedEpisode(task, evidence, None))).judgment  # type: ignore[arg-type]
    return judgment.outcome, judgment.reward


def test_a_trace_keeps_its_tokens_group_and_version(tokenizer: Any) -> None:
    first, *_ = shown = imported(TRACES, "verifiers", tokenizer)
    add, answer = first.steps
    assert add.answer == (
        '<think>easy</think>\nI add.\n<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": 1}}\n</tool_call>'
    )
    assert [unpack_ids(part).tolist() for part in (add.prompt_ids, add.action_ids)] == [
        [1, 2, 3, 4, 5],
        [6, 7],
    ]
    assert unpack_ids(answer.prompt_ids).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 5]
    assert unpack_floats(add.logprobs).tolist() == [-0.5, -0.25]
    assert unpack_ids(answer.versions).tolist() == [2]
    requests = [one.request for one in shown]
    assert {(one.origin, one.group, one.group_size) for one in requests} == {
        ("imported", requests[0].group, 4)
    }
    assert [one.member for one in requests] == [0, 1, 2, 3]
    assert len({one.episode for one in requests}) == 4
    assert isinstance(first.ended, Ended)
    assert first.ended.duration_ms == 3500.0
    assert (first.request.task.full_family, first.request.task.goal["target"]) == ("agent/sums", "2")


def test_rewards_errors_and_limits_of_traces_become_verdicts_and_ends(tokenizer: Any) -> None:
    ends = [one.ended for one in imported(TRACES, "verifiers", tokenizer)]
    assert all(isinstance(end, Ended) for end in ends)
    found = [(end.reason, *outcome(end.evidence)) for end in ends if isinstance(end, Ended)]
    assert found == [
        ("done", "success", 1.0),
        ("done", "failure", 0.0),
        ("done", "undecided", 0.0),
        ("max_steps", "failure", 0.0),
    ]
    assert isinstance(ends[2], Ended)
    assert ends[2].evidence.probes["error"] == "SandboxError: the sandbox died"


def test_a_group_that_grew_is_another_group_with_the_same_episodes(tmp_path: Path) -> None:
    lines = TRACES.read_text().splitlines()
    (tmp_path / "part.jsonl").write_text("\n".join(lines[:2]))
    early, late = (
        [request_of_conversation(one, TEXT) for one in read(file, "verifiers")]
        for file in (tmp_path / "part.jsonl", TRACES)
    )
    assert [one.episode for one in early] == [one.episode for one in late[:2]]
    assert early[0].group != late[0].group


def test_rollouts_of_nemo_gym_keep_items_groups_and_tokens(tmp_path: Path, tokenizer: Any) -> None:
    rows = [rollout(0, 0, reward=1.0), rollout(0, 1, reward=0.0), rollout(1, 0, reward=0.0, stopped=True)]
    one, other, cut = imported(write_rollouts(tmp_path / "a.jsonl", *rows), "nemo-gym", tokenizer)
    call, answer = one.steps
    assert (
        call.answer
        == '<think>easy</think>\n\n<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>'
    )
    assert (unpack_ids(call.prompt_ids).tolist(), unpack_ids(call.action_ids).tolist()) == ([1, 2], [3, 4])
    assert (answer.answer, unpack_floats(answer.logprobs).tolist()) == ("It is 2", [-0.5])
    assert (one.request.group, one.request.group_size) == (other.request.group, 2)
    assert cut.request.group_size == 1
    ends = [end for end in (one.ended, other.ended, cut.ended) if isinstance(end, Ended)]
    assert [(end.reason, outcome(end.evidence)[0]) for end in ends] == [
        ("done", "success"),
        ("done", "failure"),
        ("max_steps", "failure"),
    ]
    assert one.request.task.full_family == "agent/calculator"


def test_a_rollout_without_an_answer_or_reward_does_not_count(tmp_path: Path, tokenizer: Any) -> None:
    empty = rollout(0, 0, reward=0.0)
    empty["response"]["output"] = []
    lost = rollout(1, 0, reward=None) | {"_ng_failure_class": "sandbox_died"}
    shown = imported(write_rollouts(tmp_path / "a.jsonl", empty, lost), "nemo-gym", tokenizer)
    details = [one.ended.detail for one in shown if isinstance(one.ended, Abandoned)]
    assert details == ["the log has no answer of the model", "sandbox_died"]


IMAGE = [{"type": "input_image", "image_url": "data:"}]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"reward": 1.0}, r"line 1: `response` is missing: it is no rollout of NeMo Gym"),
        (
            rollout(0, 0, asked=IMAGE),
            r"line 1: responses_create_params\.input\[0\]\.content\[0\]: a part of type",
        ),
        (rollout(0, 0) | {"response": 3}, "line 1: it is no rollout of NeMo Gym"),
        ([], "line 1: expected an object"),
    ],
)
def test_what_is_no_rollout_is_named(tmp_path: Path, row: Any, why: str) -> None:
    with pytest.raises(ImportRefused, match=rf"a\.jsonl: {why}.*Nothing was appended"):
        read(write_rollouts(tmp_path / "a.jsonl", row), "nemo-gym")


def test_what_is_no_trace_is_named(tmp_path: Path) -> None:
    episode = json.loads(TRACES.read_text().splitlines()[0])
    file = tmp_path / "a.jsonl"
    for change, why in (
        ({"version": 9}, r"traces\[0\]: version: 9 is not 1"),
        ({"nodes": [{"parent": 5, "message": {"role": "user", "content": ""}}]}, r"nodes\[0\]\.parent: 5"),
        ({"agent": None}, "it is no trace of verifiers"),
    ):
        file.write_text(json.dumps(episode | {"traces": [episode["traces"][0] | change]}))
        with pytest.raises(ImportRefused, match=why):
            read(file, "verifiers")


def test_another_reward_or_threshold_is_another_version_of_the_judge() -> None:
    scores = {"reward": {"value": 1.5}, "format": {"value": 0.2}}
    evidence = Evidence(answer="", final_url="", probes={"scores": scores})
    assert outcome(evidence) == ("success", 1.0)
    assert outcome(evidence, RecordedOptions(reward="format")) == ("failure", 0.2)
    assert outcome(evidence, RecordedOptions(reward="format", success=0.1)) == ("success", 0.2)
    assert outcome(evidence, RecordedOptions(reward="none")) == ("undecided", 0.0)
    versions = {
        RecordedRewardJudge(options).identity.version
        for options in (RecordedOptions(), RecordedOptions(success=0.1), RecordedOptions(reward="format"))
    }
    assert len(versions) == 3


def test_the_success_of_an_imported_run_is_that_of_its_versions() -> None:
    theirs = Tally(2, "imported", "agent", "sums", success=1, failure=2, undecided=1, reward=1.0, mixed=0)
    ours = theirs._replace(version=7, origin="online")
    assert families_by_version([theirs], origin=training_origin([theirs])) == {2: {"agent/sums": (1, 3)}}
    assert training_origin([theirs, ours]) == training_origin([]) == "online"


def written_trajectory(folder: Path, **changes: Any) -> Path:
    """A trajectory as the models of the package `atif` write it: a call, its result with a picture, the answer."""
    steps = [
        {"step_id": 1, "source": "system", "message": "You count."},
        {"step_id": 2, "source": "user", "message": "How many?", "timestamp": "2026-11-28T10:00:00Z"},
        {
            "step_id": 3,
            "source": "agent",
            "message": "I look.",
            "model_name": "m",
            "reasoning_content": "easy",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "look", "arguments": {"at": "shelf"}}],
            "observation": {
                "results": [
                    {
                        "source_call_id": "c1",
                        "content": [
                            {"type": "text", "text": "three jars"},
                            {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
                        ],
                    }
                ]
            },
            "metrics": {
                "prompt_token_ids": [1, 2, 3],
                "completion_token_ids": [4, 5],
                "logprobs": [-0.5, -0.25],
            },
        },
        {"step_id": 4, "source": "agent", "message": "3", "timestamp": "2026-11-28T10:00:02.500Z"},
    ]
    agent = {"name": "counter", "version": "1.2", "model_name": "m"}
    plain = {"schema_version": "ATIF-v1.4", "session_id": "s1", "agent": agent, "steps": steps} | changes
    file = folder / "one.json"
    file.write_text(Trajectory.model_validate(plain).model_dump_json(exclude_none=True))
    return file


def test_a_trajectory_of_another_agent_keeps_its_answers_and_tokens(tmp_path: Path, tokenizer: Any) -> None:
    (episode,) = imported(written_trajectory(tmp_path).parent, "atif", tokenizer)
    look, answer = episode.steps
    assert look.answer == (
        '<think>easy</think>\nI look.\n<tool_call>\n{"name": "look", "arguments": {"at":"shelf"}}\n</tool_call>'
    )
    assert unpack_ids(look.prompt_ids).tolist() == [1, 2, 3]
    assert unpack_floats(look.logprobs).tolist() == [-0.5, -0.25]
    assert answer.answer == "3"
    assert unpack_floats(answer.logprobs).tolist() == [0.0] * len(unpack_ids(answer.action_ids))
    (conversation,) = read(tmp_path / "one.json", "atif")
    assert conversation.turns[1].new == (
        {"role": "tool", "tool_call_id": "c1", "content": "three jars\n[picture images/a.png]"},
    )
    assert (episode.request.task.full_family, episode.instruction) == ("agent/counter", "How many?")
    assert isinstance(episode.ended, Ended)
    assert episode.ended.duration_ms == 2500.0
    assert outcome(episode.ended.evidence)[0] == "undecided"


def test_a_number_in_a_trajectorys_extra_is_its_reward(tmp_path: Path, tokenizer: Any) -> None:
    (episode,) = imported(written_trajectory(tmp_path, extra={"reward": 1}), "atif", tokenizer)
    assert isinstance(episode.ended, Ended)
    assert outcome(episode.ended.evidence) == ("success", 1.0)


def test_a_copied_step_is_part_of_the_prompt(tmp_path: Path) -> None:
    file = written_trajectory(tmp_path)
    plain = json.loads(file.read_text())
    plain["steps"][2] |= {"is_copied_context": True}
    file.write_text(json.dumps(plain))
    (conversation,) = read(file, "atif")
    assert [turn.text for turn in conversation.turns] == ["3"]
    assert [one["role"] for one in conversation.turns[0].new] == ["system", "user", "assistant", "tool"]


def test_what_is_no_trajectory_is_refused_with_its_file(tmp_path: Path) -> None:
    file = written_trajectory(tmp_path)
    plain = json.loads(file.read_text()) | {"schema_version": "ATIF-v9.0"}
    file.write_text(json.dumps(plain))
    with pytest.raises(
        ImportRefused, match=r"one\.json, schema_version: 'ATIF-v9\.0' is not one of ATIF-v1\.0"
    ):
        read(file, "atif")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ImportRefused, match="holds no trajectory"):
        read(empty, "atif")


def test_the_importer_of_the_documentation_reads_its_file(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
    section = page[page.index("## Add an importer") : page.index("## Add an alert")]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (tmp_path / "answered.py").write_text(block)
    (tmp_path / "answers.tsv").write_text("2 + 2?\t4\t1\n2 + 3?\t4\t0\n")
    monkeypatch.syspath_prepend(tmp_path)
    shown = imported(tmp_path / "answers.tsv", "answered:IMPORTER", tokenizer)
    assert [(one.instruction, one.steps[0].answer) for one in shown] == [("2 + 2?", "4"), ("2 + 3?", "4")]
    ends = [one.ended for one in shown]
    assert [outcome(end.evidence)[0] for end in ends if isinstance(end, Ended)] == ["success", "failure"]
