"""What a file must hold to become demonstrations, and what is said where it does not."""

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hindcast.app.cli import app
from hindcast.app.demonstrations.pending import DemonstratedEpisode
from hindcast.app.imports.check import check
from hindcast.app.imports.documents import ImportRefused, read_documents
from hindcast.app.imports.import_documents import try_out
from hindcast.app.imports.player import play, request_of
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.sites import task_sources
from hindcast.app.system.system import StartFailed, check_home_is_free
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.grammar.answer_parser import parse_answer
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.settings.schema import Settings
from stories.demonstrated_documents import clicks, page, says

pytestmark = pytest.mark.torch

PLAIN = resolve(environment={}).settings
THINKING = resolve(environment={}, overrides=["actors.answer_format=thinking"]).settings


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(policy_folder(PLAIN.policy.base))


def written(folder: Path, *documents: Any) -> Path:
    file = folder / "episodes.jsonl"
    file.write_text("".join(f"{json.dumps(one)}\n" for one in documents))
    return file


def played(folder: Path, document: Any, tokenizer: Any, settings: Settings = PLAIN) -> DemonstratedEpisode:
    (read,) = read_documents(written(folder, document), "jsonl")
    check(read.document, settings, sources=task_sources(settings))
    return asyncio.run(play(read.document, settings, tokenizer))


def test_a_document_becomes_a_demonstrators_episode(tmp_path: Path, tokenizer: Any) -> None:
    shown = played(tmp_path, clicks(1), tokenizer)
    assert shown.judgment.outcome == "success"
    assert (shown.request.origin, shown.ended.reason, shown.ended.policy_versions) == (
        "demonstration",
        "done",
        (-1, -1),
    )
    assert len(shown.blobs) == 3, "two pages and the last one"
    for step, told in zip(shown.steps, clicks(1)["steps"], strict=True):
        assert step.action is not None
        assert step.action.element == told["action"]["element"]
        tokens = unpack_ids(step.action_ids).tolist()
        assert tokenizer.decode(tokens, skip_special_tokens=True) == step.answer
        assert set(unpack_ids(step.versions).tolist()) == {-1}
        assert set(unpack_floats(step.logprobs).tolist()) == {0.0}
        assert clicks(1)["instruction"] in tokenizer.decode(unpack_ids(step.prompt_ids).tolist())
        assert parse_answer(step.answer) == step.action
    first, second = shown.steps
    assert first.answer.strip() in tokenizer.decode(unpack_ids(second.prompt_ids).tolist())


def test_results_and_awkward_texts_survive(tmp_path: Path, tokenizer: Any) -> None:
    shown = played(tmp_path, says(1), tokenizer)
    assert shown.steps[0].result == "not_actionable"
    assert shown.steps[0].detail == "the element is hidden"
    assert shown.steps[0].action is not None
    assert shown.steps[0].action.argument == 'A "quoted" \\ näme\nof two lines'
    assert shown.ended.evidence.answer == "42"
    assert shown.judgment.outcome == "failure"


def test_a_thought_goes_where_answers_have_one(tmp_path: Path, tokenizer: Any) -> None:
    shown = played(tmp_path, clicks(1, thought="ONE comes first."), tokenizer, THINKING)
    assert shown.steps[0].answer.startswith("<think>ONE comes first.</think>")
    assert shown.steps[0].answer_from > 0


def test_who_judged_it_where_makes_it_no_other_demonstration(tmp_path: Path) -> None:
    told = {"judge": "rules", "version": "1", "outcome": "success", "reward": 1.0, "reason": ""}
    one, other = [
        read.document
        for read in read_documents(written(tmp_path, clicks(1), clicks(1) | {"verdicts": [told]}), "jsonl")
    ]
    assert request_of(one, PLAIN) == request_of(other, PLAIN)
    assert request_of(one, PLAIN, attempt=1).episode != request_of(one, PLAIN).episode
    assert request_of(one, PLAIN, attempt=1).group == request_of(one, PLAIN).group


def changed(path: str, value: Any, *, of: Any = None) -> Any:
    """A document with another value at a path such as `steps.0.page`; `...`: without it."""
    document = copy.deepcopy(of or clicks(1))
    inside: Any = document
    *parts, last = (int(part) if part.isdigit() else part for part in path.split("."))
    for part in parts:
        inside = inside[part]
    if value is ...:
        del inside[last]
    else:
        inside[last] = value
    return document


WRONG: list[tuple[Any, str]] = [
    (changed("steps.0.page", None), r"steps\[0\]\.page: missing"),
    (changed("steps.1.action", None), r"steps\[1\]\.action: null"),
    (changed("steps.0.action.name", "Jump"), r"steps\[0\]\.action\.name: there is no action 'Jump'"),
    (changed("steps.0.action.element", 7), r"steps\[0\]\.action\.element: the page .* has no element 7"),
    (changed("steps.0.action.element", ...), r"steps\[0\]\.action\.element: missing: Click needs it"),
    (
        changed("steps.0.action.element", "1"),
        r"steps\[0\]\.action\.element: Expected `int \| null`, got `str`",
    ),
    (changed("steps.0.action.argument", "x"), r"steps\[0\]\.action\.argument: Click takes none"),
    (changed("steps.0.action.elment", 1), r"steps\[0\]\.action\.elment: there is no such key"),
    (changed("steps.0.page.nodes.0.role", "x"), r"steps\[0\]\.page\.nodes\[0\]\.role: there is no such key"),
    (changed("steps.0.thought", "hm"), r"steps\[0\]\.thought: .*actors\.answer_format = 'thinking'"),
    (changed("steps.0.result", "parse_failure"), r"steps\[0\]\.result: parse_failure"),
    (changed("steps.0.result", "exit"), r"steps\[0\]\.result: 'exit' is not what Click leads to"),
    (changed("steps", []), r"steps: there is none"),
    (changed("task.max_steps", 1), r"steps: there are 2, but task\.max_steps is 1"),
    (changed("task.environment", "moon"), r"task\.environment: 'moon' has no evaluator"),
    (
        changed("task.environment", "web"),
        r"task: no task of the run: tasks of web may name resets and logins",
    ),
    (changed("task.family", ...), r"task: Object missing required field `family`"),
    (changed("reason", "exit"), r"reason: 'exit' is not how an episode ends whose last action is Click"),
    (changed("reason", "max_steps"), r"reason: 'max_steps' after 2 of 5 steps"),
    (changed("reason", "bored"), r"reason: Invalid enum value 'bored'"),
    (changed("final_page", ...), r"final_page: missing"),
    (changed("final_page", page("other"), of=says(1)), r"final_page: exit changes no page"),
    (changed("evidence.answer", "41", of=says(1)), r"evidence\.answer: '41', but the last action gives '42'"),
    (changed("format", "hindcast-episode/2"), r"format: Invalid enum value"),
    (changed("extra", 1), r"unknown field `extra`"),
    (changed("task.seed", 2**63), r"task\.seed: this integer does not fit into 64 bits"),
    (
        changed("task.goal.far", [0, -(2**80)]),
        r"task\.goal\.far\[1\]: this integer does not fit into 64 bits",
    ),
]


@pytest.mark.parametrize(("document", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_does_not_fit_is_named_with_line_and_key(tmp_path: Path, document: Any, said: str) -> None:
    file = written(tmp_path, clicks(2), document)
    with pytest.raises(ImportRefused, match=rf"episodes\.jsonl, line 2: .*{said}.*Nothing was appended"):
        asyncio.run(try_out(file, PLAIN, format_name="jsonl"))


@pytest.mark.parametrize("line", ["{", "[]", "\xff", "[" * 2000])
def test_a_line_that_is_no_document_is_said_so(tmp_path: Path, line: str) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_bytes(line.encode("latin-1"))
    with pytest.raises(ImportRefused, match=r"broken\.jsonl, line 1: "):
        list(read_documents(file, "jsonl"))


def test_no_system_starts_in_the_home_while_a_file_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def while_checking(*_: Any, **__: Any) -> int:
        with pytest.raises(StartFailed, match="another system runs in"):
            check_home_is_free(tmp_path)
        raise ImportRefused("seen")

    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path))
    monkeypatch.setattr("hindcast.app.imports.import_documents.try_out", while_checking)
    result = CliRunner().invoke(app, ["demonstrations", "import", str(written(tmp_path, clicks(1)))])
    assert str(result.exception) == "seen"
    check_home_is_free(tmp_path)


def test_nothing_to_be_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="none cannot be read: No such file"):
        list(read_documents(tmp_path / "none", "jsonl"))
    with pytest.raises(ImportRefused, match="holds no trajectory"):
        list(read_documents(tmp_path, "atif-pages"))
    empty = written(tmp_path)
    with pytest.raises(ImportRefused, match="holds no demonstration"):
        asyncio.run(try_out(empty, PLAIN, format_name="jsonl"))


FOREIGN = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "other", "version": "1"},
    "steps": [{"step_id": 1, "source": "user", "message": "Do it."}],
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, r"extra\.hindcast: missing"),
        ({"schema_version": "ATIF-v9.9"}, r"schema_version: 'ATIF-v9\.9' is not one of ATIF-v1\.0"),
        (
            {"steps": [{"step_id": 2, "source": "user", "message": ""}]},
            r"steps\[0\]\.step_id: expected 1, found 2",
        ),
        ({"extra": {"hindcast": {}}}, "steps: expected the user's instruction, the first page"),
        ({"subagent_trajectories": []}, "unknown field `subagent_trajectories`"),
    ],
)
def test_a_trajectory_that_cannot_be_mapped_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    (tmp_path / "one.json").write_text(json.dumps(FOREIGN | change))
    with pytest.raises(ImportRefused, match=rf"one\.json: .*{said}"):
        list(read_documents(tmp_path, "atif-pages"))
