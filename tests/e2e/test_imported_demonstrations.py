"""Demonstrations from files, exported again and imported into another run, whose cloning trains on them; logs of Inspect."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hindcast.actors.episodes.recorder import EpisodeRecord
from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.imports.import_documents import import_documents
from hindcast.app.runs.runs import open_run
from hindcast.core.domain.arrays import unpack_floats
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    StepTaken,
    UpdateApplied,
)
from hindcast.events.envelope import Fact
from hindcast.events.log.reader import read
from processes.system import ROOT
from stories.demonstrated_documents import clicks, says
from stories.guide_reader import Reader
from stories.gym_rollouts import rollout, write_rollouts
from stories.inspect_logs import WITH_TOOL, sample, write_log

pytestmark = [pytest.mark.broker, pytest.mark.torch, pytest.mark.browser]

GUIDE = (ROOT / "docs" / "exports.md").read_text().split("## Demonstrations\n", 1)[1]
COMMANDS = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)[0].splitlines()
TRACES = ROOT / "tests" / "stories" / "verifiers_traces.jsonl"
"""Four episodes of one group, written by verifiers 0.4.0."""
NEW = "--recipe sft --set curriculum.demonstrations=2"


def facts_of(home: Path, run: str) -> list[Fact]:
    async def main() -> list[Fact]:
        async with open_run(run, home=home).connect_log() as log:
            return [recorded.fact async for recorded in read(log)]

    return asyncio.run(main())


def written(file: Path, *documents: Any) -> str:
    file.write_text("".join(f"{json.dumps(one)}\n" for one in documents))
    return str(file)


def commands_of(section: str) -> list[str]:
    """Commands of the guide's section whose heading ends so."""
    found = re.search(rf"### [^\n]*{section}\n.*?```sh\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def documents_of(file: Path) -> list[EpisodeDocument]:
    """Without what belongs to the run that they were exported from."""
    found = [msgspec.json.decode(line, type=EpisodeDocument) for line in file.read_bytes().splitlines()]
    return [msgspec.structs.replace(one, source=None, verdicts=()) for one in found]


def test_a_run_learns_from_what_another_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    given = written(tmp_path / "given.jsonl", clicks(1), clicks(2))
    said = reader.run(f"hindcast demonstrations import {given} --run shown {NEW}")
    assert "run shown: 2 demonstrations of 4 steps appended (by the rules: 2 success)" in said
    reader.run("hindcast rebuild shown")
    reader.run("hindcast export shown --to lines --format jsonl")
    reader.run("hindcast export shown --to trajectories --format atif")
    exported = documents_of(tmp_path / "lines" / "episodes.jsonl")
    expected = [msgspec.convert(clicks(seed), EpisodeDocument) for seed in (1, 2)]
    assert [[(one.instruction, step.page, step.action) for step in one.steps] for one in exported] == [
        [(one.instruction, step.page, step.action) for step in one.steps] for one in expected
    ]
    assert [(one.task, one.evidence, one.final_page) for one in exported] == [
        (one.task, one.evidence, one.final_page) for one in expected
    ]

    told = {line: reader.run(line) for line in COMMANDS}
    assert "no defects" in told["hindcast audit taught"]
    facts = facts_of(tmp_path / "home", "taught")
    ended = {fact.episode for fact in facts if isinstance(fact, EpisodeEnded)}
    judged = {fact.episode: fact.judgment.outcome for fact in facts if isinstance(fact, EpisodeJudged)}
    assert judged == dict.fromkeys(ended, "success")
    assert len(ended) == 2, "nobody else showed anything"
    applied = [fact for fact in facts if isinstance(fact, UpdateApplied)]
    assert len(applied) == 1
    assert len(unpack_floats(applied[0].samples.weights)) == 4, "every step of both"

    # the same by way of trajectories is the same to the byte
    said = reader.run("hindcast demonstrations import trajectories --format atif --run taught")
    assert "0 demonstrations of 0 steps appended, 2 were there" in said


def test_an_import_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    first = written(tmp_path / "first.jsonl", clicks(1))
    reader.run(f"hindcast demonstrations import {first} --run shown {NEW}")
    whole = Path(written(tmp_path / "whole.jsonl", clicks(1), says(2), clicks(3)))
    handle = open_run("shown", home=tmp_path / "home")

    class PowerCut(Exception):
        pass

    async def cut(_self: EpisodeRecord, _outcome: object) -> bool:
        raise PowerCut

    with monkeypatch.context() as dying:
        dying.setattr(EpisodeRecord, "finish", cut)
        with pytest.raises((PowerCut, BaseExceptionGroup)):
            asyncio.run(import_documents(handle, whole, format_name="jsonl"))
    said = reader.run(f"hindcast demonstrations import {whole} --run shown --json")
    told = json.loads(said.splitlines()[-1])
    assert (told["episodes"], told["present"], told["outcomes"]) == (2, 1, {"failure": 1, "success": 1})
    facts = facts_of(tmp_path / "home", "shown")
    assert len([fact for fact in facts if isinstance(fact, EpisodeEnded)]) == 3
    (gone,) = [fact for fact in facts if isinstance(fact, EpisodeAbandoned)]
    assert gone.steps == len([f for f in facts if isinstance(f, StepTaken) and f.episode == gone.episode])
    requests = [fact for fact in facts if isinstance(fact, EpisodeRequested)]
    assert [fact.attempt for fact in requests] == [0, 0, 1, 0]
    assert "no defects" in reader.run("hindcast audit shown")


def test_an_evaluation_of_others_is_audited_and_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, monkeypatch)
    both = sample(2, scores={"includes": {"value": "C"}, "strict": {"value": "C"}})
    lost = sample("lost", error={"message": "the sandbox died"}, scores={})
    log = write_log(tmp_path / "log.eval", WITH_TOOL, both, lost, zstandard=True)
    commands = commands_of("Inspect")
    assert log.name in commands[0]
    shown = {line: reader.run(line) for line in commands}
    imported, _, audited, other, _ = shown.values()
    assert "3 episodes of 4 steps appended (by inspect: 2 success), 1 of them abandoned" in imported
    assert "no defects" in audited
    assert "1 flip against inspect" in other
    facts = facts_of(tmp_path / "home", "theirs")
    judged = [fact for fact in facts if isinstance(fact, EpisodeJudged)]
    assert [(fact.judge.name, fact.judgment.outcome) for fact in judged] == [("inspect", "success")] * 2
    (gone,) = [fact for fact in facts if isinstance(fact, EpisodeAbandoned)]
    assert (gone.detail, gone.steps) == ("the sandbox died", 1)
    chats = [json.loads(line) for line in (tmp_path / "chats" / "chats.jsonl").read_text().splitlines()]
    assert [(chat["messages"][-1]["content"], chat["reward"]) for chat in chats] == [
        ("<think>easy</think>\nIt is 2", 1.0),
        ("2", 1.0),
    ]

    again = reader.run("hindcast import log.eval theirs --format inspect")
    assert "0 episodes of 0 steps appended, 3 were there" in again
    reader.run("hindcast export theirs --to back --format inspect")
    (back,) = (tmp_path / "back").glob("*.eval")
    said = reader.run(f"hindcast import {back} back --format inspect --set judge.judges=inspect")
    assert "2 episodes of 3 steps appended (by inspect: 2 success)" in said


def test_a_run_of_another_trainer_keeps_its_groups_versions_and_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, monkeypatch)
    (tmp_path / "traces.jsonl").write_bytes(TRACES.read_bytes())
    imported, listed, audited, other, counted = (
        reader.run(line) for line in commands_of("verifiers and prime-rl")
    )
    assert "4 episodes of 8 steps appended (by recorded: 2 failure, 1 success, 1 undecided)" in imported
    assert "imported" in listed
    assert "SUSPICION errors_as_failures, 1 episode," in audited
    assert "no defects" in audited
    assert "0 flips against recorded" in other
    assert [line.split() for line in counted.splitlines() if "success" in line] == [["2", "success", "1"]]
    requests = [one for one in facts_of(tmp_path / "home", "sums") if isinstance(one, EpisodeRequested)]
    assert len({one.group for one in requests}) == 1
    assert requests[0].group in reader.run(f"hindcast lineage episode {requests[0].episode} sums --json")


def test_rollouts_of_a_gym_are_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    rows = [rollout(0, 0), rollout(0, 1, reward=0.0)]
    write_rollouts(tmp_path / "rollouts.jsonl", *rows)
    imported, audited, _ = (reader.run(line) for line in commands_of("NeMo Gym"))
    assert "2 episodes of 4 steps appended (by recorded: 1 failure, 1 success)" in imported
    assert "SUSPICION" not in audited
    assert "no defects" in audited
