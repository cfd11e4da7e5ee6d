"""A run in every format: read again with other people's tools, and compared with the log."""

import asyncio
import errno
import json
import math
import os
import re
import struct
import zipfile
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import atif
import duckdb
import msgspec
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection
from typer.testing import CliRunner, Result

from fakes.bare_step import bare_step
from hindcast.app.cli import app
from hindcast.app.exports import EXPORTERS
from hindcast.app.exports.dataset import SCHEMA, DatasetOptions, DatasetWriter
from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.exports.export import export_episode, open_sources, write_export
from hindcast.app.exports.functions import action_of, arguments_of, function_name
from hindcast.app.exports.lines import LineRefused, _from_json, _to_json, from_line
from hindcast.app.exports.output_folder import ExportFailed, ExportRefused, file_name, whole_folder
from hindcast.app.exports.tables import TABLES
from hindcast.app.exports.trl import TrlLine, first_difference
from hindcast.app.exports.verifiers_traces import nodes_of
from hindcast.app.imports.atif import document_of_trajectory
from hindcast.app.imports.decoder import DocumentError
from hindcast.app.imports.verifiers_traces import conversations_of
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.folded_read_model import folded
from hindcast.core.domain.action import ACTIONS, Action
from hindcast.core.domain.arrays import pack_ids, unpack_floats, unpack_ids
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.plugins import plugin_names
from hindcast.core.prompts.rendering.lines import render_lines
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
    UpdateApplied,
)
from hindcast.events.codec import decode
from hindcast.events.envelope import Recorded, Stored
from hindcast.events.log.episode_assembler import AssembledStep
from hindcast.storage.readmodel.episode_queries import EpisodeFilter, list_episodes
from hindcast.storage.readmodel.query_parts import NotInReadModel
from stories.export_story import FIRST_PROMPT, HOSTILE, IMAGE, page, told_archive

DOCS = Path(__file__).parents[2] / "docs" / "exports.md"


NANS = (0x7FF8000000000001, 0xFFF8000000000000)
"""Floats that are no number, but not the usual one."""


class Told:
    """The archived run, its events, and what the command wrote of it."""

    def __init__(self, source: ArchiveSource, events: list[Stored], connection: Connection) -> None:
        self.source = source
        self.stored = events
        self.recorded: list[Recorded] = [found for one in events if (found := decode(one)) is not None]
        self.connection = connection
        self.out: dict[str, Path] = {}

    def facts(self, kind: type) -> list[Any]:
        return [one.fact for one in self.recorded if isinstance(one.fact, kind)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("exports")
    source, events = asyncio.run(told_archive(folder / "tale"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HINDCAST_HOME", str(folder / "home"))
        model = folded(source)
        with model.reading() as connection:
            found = Told(source, events, connection)
            for name in plugin_names(EXPORTERS):
                found.out[name] = folder / name
                done = call(found, "--to", str(found.out[name]), "--format", name, "--json")
                assert done.exit_code == 0, done.output
                assert json.loads(done.stdout)["position"] == len(events)
            yield found
        model.close()


def call(told: Told, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", str(told.source.folder), *arguments])


def rows(told: Told, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(told.out["parquet"] / f"{table}.parquet").to_pylist()
    return found


# --- jsonl


def test_every_event_is_a_line_that_gives_its_bytes_back(told: Told) -> None:
    lines = (told.out["jsonl"] / "facts.jsonl").read_bytes().splitlines()
    assert [from_line(line) for line in lines] == [(one.position, one.data) for one in told.stored]


def test_an_altered_line_is_refused(told: Told) -> None:
    line = (told.out["jsonl"] / "facts.jsonl").read_text().splitlines()[40]
    with pytest.raises(LineRefused, match=r"the event of position 41 was altered"):
        from_line(line.replace("episode", "epizode", 1))
    with pytest.raises(LineRefused, match="no exported event"):
        from_line("{}")
    for no_payload in ('{"$map":1}', '{"$float":"00"}', f"{2**70}", "[" * 100_000):
        with pytest.raises(LineRefused, match="no exported event"):
            from_line(f'{{"position":1,"sha256":"","prev_hash":"","payload":{no_payload}}}')


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats()
        | st.sampled_from([struct.unpack(">d", bits.to_bytes(8))[0] for bits in NANS])
        | st.text(st.characters(exclude_categories=("Cs",)))
        | st.binary(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(("$bytes", "$float", "$map", "a")) | st.text("ab"), inner)
        ),
        max_leaves=12,
    )
)
def test_whatever_messagepack_can_say_survives_json(value: Any) -> None:
    line = msgspec.json.encode(_to_json(value))
    assert msgspec.msgpack.encode(_from_json(msgspec.json.decode(line))) == msgspec.msgpack.encode(value)


def test_episodes_are_documents_with_their_pages(told: Told) -> None:
    lines = (told.out["jsonl"] / "episodes.jsonl").read_bytes().splitlines()
    documents = [msgspec.json.decode(line, type=EpisodeDocument) for line in lines]
    ended = told.facts(EpisodeEnded)
    assert [one.source and one.source.episode for one in documents] == [fact.episode for fact in ended]
    steps = [fact for fact in told.facts(StepTaken) if fact.episode == ended[0].episode]
    assert [step.action for step in documents[0].steps] == [fact.action for fact in steps]
    assert documents[0].steps[0].page == page(0)
    assert documents[0].final_page == page(99)
    assert {one.instruction for one in documents} == {HOSTILE}


# --- parquet


def test_tables_have_a_row_for_every_fact(told: Told) -> None:
    types = Counter(one.envelope.type for one in told.recorded)
    assert {name: len(rows(told, name)) for name in TABLES if name != "tokens"} == {
        "episodes": types["episode.requested"],
        "steps": types["step.taken"],
        "verdicts": types["episode.judged"],
        "disputes": types["verdict.disputed"],
        "relabels": types["episode.relabeled"],
        "updates": types["update.applied"] + types["update.skipped"],
        "policies": types["weights.published"],
    }


def test_tokens_are_those_that_were_sampled_bit_by_bit(told: Told) -> None:
    found = rows(told, "tokens")
    expected = [
        (fact.episode, fact.index, place, *values)
        for fact in told.facts(StepTaken)
        for place, values in enumerate(
            zip(
                unpack_ids(fact.action_ids).tolist(),
                unpack_floats(fact.logprobs).tolist(),
                unpack_ids(fact.versions).tolist(),
                strict=True,
            )
        )
    ]
    names = ("episode", "step", "place", "token_id", "logprob", "version")
    assert [tuple(row[name] for name in names) for row in found] == expected
    prompts = [row["prompt_ids"] for row in rows(told, "steps")]
    assert prompts == [unpack_ids(fact.prompt_ids).tolist() for fact in told.facts(StepTaken)]


def test_episodes_agree_with_the_read_model(told: Told) -> None:
    names = ("episode", "state", "outcome", "reward", "steps", "version_low", "origin", "family", "actor")
    known = {row.episode: row for row in list_episodes(told.connection, limit=10_000)}
    found = rows(told, "episodes")
    assert len(found) == len(known)
    for row in found:
        other = known[row["episode"]]
        assert [row[name] for name in names] == [getattr(other, name) for name in names]
    assert {"ended", "abandoned", "cancelled"} <= {row["state"] for row in found}


def test_metrics_are_kept_even_those_that_are_no_numbers(told: Told) -> None:
    applied = [row for row in rows(told, "updates") if row["outcome"] == "applied"]
    assert len(applied) == len(told.facts(UpdateApplied))
    assert dict(applied[0]["metrics"])["loss"] == 0.25
    assert math.isnan(dict(applied[0]["metrics"])["entropy"])


# --- trajectories


def test_trajectories_pass_the_checks_of_the_format(told: Told) -> None:
    files = sorted(told.out["atif"].glob("ep_*.json"))
    assert len(files) == len(told.facts(EpisodeEnded))
    for file in files:
        found = atif.Trajectory.model_validate_json(file.read_bytes())
        assert found.schema_version == "ATIF-v1.8"
        assert found.steps[0].message == HOSTILE
        for step in found.steps[2:]:
            assert step.metrics is not None
            assert step.metrics.completion_token_ids is not None
            assert step.metrics.logprobs is not None
            assert len(step.metrics.completion_token_ids) == len(step.metrics.logprobs)
    pictures = list((told.out["atif"] / "images").iterdir())
    assert [one.read_bytes() for one in pictures] == [IMAGE]
    first = atif.Trajectory.model_validate_json(files[0].read_bytes()).steps[1].observation
    assert first is not None
    content = first.results[0].content
    assert isinstance(content, list)
    assert content[0].text == render_lines(page(0))
    assert (told.out["atif"] / content[1].source.path).is_file()  # type: ignore[union-attr]


def test_a_trajectory_gives_its_document_back(told: Told) -> None:
    lines = (told.out["jsonl"] / "episodes.jsonl").read_bytes().splitlines()
    back, refused = 0, 0
    for document in (msgspec.json.decode(line, type=EpisodeDocument) for line in lines):
        assert document.source is not None
        content = (told.out["atif"] / f"{document.source.episode}.json").read_bytes()
        if all(step.action for step in document.steps):
            assert document_of_trajectory(content) == document
            back += 1
        else:
            with pytest.raises(
                DocumentError, match=r"steps\[\d\]\.tool_calls: a step has one action, found 0"
            ):
                document_of_trajectory(content)
            refused += 1
    assert back > 2
    assert refused > 2


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_is_a_function_call_and_back(name: str) -> None:
    action = Action(name=name, element=7, argument="é \n")
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function_name(name))
    assert action_of(function_name(name), arguments_of(action)) == action


def test_sessions_are_as_the_format_describes_them(told: Told) -> None:
    verdict_of = {row["episode"]: row["outcome"] for row in rows(told, "episodes")}
    files = list(told.out["sts"].glob("ep_*.jsonl"))
    assert len(files) == len(told.facts(EpisodeEnded))
    for file in files:
        header, *lines = map(json.loads, file.read_text().splitlines())
        assert header["outcome"] == verdict_of[file.stem], (
            "the training judge's, whoever else spoke, and first"
        )
        assert (header["type"], header["harness"], header["id"]) == ("session", "hindcast", file.stem)
        called: set[str] = set()
        for line in lines:
            assert line.keys() == {"type", "message"}
            message = line["message"]
            assert message["role"] in ("user", "assistant", "system", "tool")
            assert isinstance(message["content"], str)
            for one in message.get("toolCalls", ()):
                called.add(one["id"])
                assert isinstance(json.loads(one["function"]["arguments"]), dict)
            if message["role"] == "tool":
                assert message["toolCallId"] in called


# --- html


def test_a_file_needs_nothing_and_runs_nothing(told: Told) -> None:
    ended = told.facts(EpisodeEnded)
    found = export_episode(
        told.source, told.connection, ended[0].episode, format_name="html", position=len(told.stored)
    )
    assert found.name == f"{ended[0].episode}.html"
    text = found.content.decode()
    assert "<script" not in text
    assert "onerror=&#34;" in text
    assert "{{ 7 * 7 }}" in text
    addresses = re.findall(r'(?:href|src|action|data-\w+)="([^"]*)"', text)
    assert all(one.startswith(("data:image/jpeg;base64,", "#step-")) for one in addresses)
    assert f'href="data:image/jpeg;base64,{b64encode(IMAGE).decode()}"' in text
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert f"default-src &#39;none&#39;; style-src &#39;sha256-{digest}&#39;; img-src data:" in text
    assert "Item 40" in text, "the page of a step"
    assert "The exact prompt, 64 tokens" in text


def test_the_page_of_a_run_has_a_file_for_each_episode_and_what_is_not_there_is_no_link(
    told: Told, tmp_path: Path
) -> None:
    files = {file.stem for file in (told.out["html"] / "episodes").glob("*.html")}
    assert files == {fact.episode for fact in told.facts(EpisodeEnded)}
    done = call(told, "--to", str(tmp_path / "out"), "--format", "html", "--outcome", "success", "--json")
    counts = json.loads(done.stdout)["counts"]
    chosen = {file.stem for file in (tmp_path / "out" / "episodes").glob("*.html")}
    assert counts["episodes"] == len(chosen) < len(files)
    assert counts["other pages"] == len(list((tmp_path / "out").glob("*.html")))
    for name in ("episodes.html", "timeline.html"):
        linked = set(re.findall(r'href="episodes/(\w+)\.html"', (tmp_path / "out" / name).read_text()))
        assert linked <= chosen
        assert linked


# --- dataset


def test_the_card_names_the_columns_and_rows_that_are_there(told: Told) -> None:
    folder = told.out["dataset"]
    _, front, words = (folder / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["license"] == "unknown"
    names = [one["name"] for one in card["dataset_info"]["features"]]
    assert names == SCHEMA.names
    assert {one["split"] for one in card["configs"][0]["data_files"]} == {"train"}
    for split in card["dataset_info"]["splits"]:
        files = sorted((folder / "data").glob(f"{split['name']}-*"))
        assert sum(pq.read_metadata(file).num_rows for file in files) == split["num_examples"]
    whole = CliRunner().invoke(app, ["archive", "check", str(told.source.folder), "--json"])
    assert f"`{json.loads(whole.stdout)['digest']}`" in words


@pytest.mark.parametrize(
    ("arguments", "origins"),
    [
        ([], {"train": {"online", "demonstration"}}),
        (
            ["--option", "evaluations=true"],
            {"train": {"online", "demonstration"}, "test": {"evaluation"}},
        ),
        (["--origin", "evaluation"], {"test": {"evaluation"}}),
    ],
)
def test_a_dataset_has_evaluations_only_where_they_are_asked_for_and_apart(
    told: Told, tmp_path: Path, arguments: list[str], origins: dict[str, set[str]]
) -> None:
    done = call(told, "--to", str(tmp_path / "out"), "--format", "dataset", *arguments)
    assert done.exit_code == 0, done.output
    found: dict[str, set[str]] = {}
    for file in (tmp_path / "out" / "data").iterdir():
        split = file.name.partition("-")[0]
        found.setdefault(split, set()).update(pq.read_table(file)["origin"].to_pylist())
    assert found == origins


def test_shards_are_cut_by_size_and_say_how_many_there_are(told: Told, tmp_path: Path) -> None:
    online = EpisodeFilter(origin="online")
    sources = open_sources(told.source, told.connection, position=len(told.stored), wanted=online)
    writer = DatasetWriter(tmp_path, sources, DatasetOptions(shard_bytes=5000))
    asyncio.run(write_export(sources, writer, tmp_path, format_name="dataset"))
    files = sorted(file.name for file in (tmp_path / "data").iterdir())
    assert len(files) > 2
    assert files == [f"train-{place:05}-of-{len(files):05}.parquet" for place in range(len(files))]
    found = pyarrow.dataset.dataset(tmp_path / "data").to_table().to_pylist()
    assert {row["episode"] for row in found} == {
        f.episode for f in told.facts(EpisodeEnded)
    } & sources.chosen.keys()
    assert found[0]["steps"][0]["page"] == render_lines(page(0))


# --- trl


def json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_for_trainers_are_the_recorded_tokens_as_text(told: Told) -> None:
    found = json_rows(told.out["trl"] / "steps.jsonl")
    ended = {fact.episode for fact in told.facts(EpisodeEnded)}
    held_out = {f.episode for f in told.facts(EpisodeRequested) if f.origin == "evaluation"}
    steps = {(s.episode, s.index): s for s in told.facts(StepTaken) if s.episode in ended - held_out}
    assert held_out & ended
    assert {(row["episode"], row["step"]) for row in found} == steps.keys()
    tokenizer = load_tokenizer(policy_folder("base"))
    for row in found:
        step = steps[row["episode"], row["step"]]
        assert row["prompt_ids"] == unpack_ids(step.prompt_ids).tolist()
        assert row["completion_ids"] == unpack_ids(step.action_ids).tolist()
        assert row["logprobs"] == unpack_floats(step.logprobs).tolist()
        assert row["prompt"] == tokenizer.decode(row["prompt_ids"])
        assert row["completion"] == tokenizer.decode(row["completion_ids"])


def test_steps_have_the_reward_and_the_first_planned_advantage(told: Told) -> None:
    found = json_rows(told.out["trl"] / "steps.jsonl")
    planned: dict[str, float] = {}
    for plan in told.facts(BatchPlanned):
        for one in plan.episodes:
            planned.setdefault(one.episode, one.advantage)
    assert planned
    first = {f.episode: f.judgment for f in reversed(told.facts(EpisodeJudged)) if f.judge.name == "rules"}
    for row in found:
        assert row["advantage"] == planned.get(row["episode"])
        judged = first.get(row["episode"])
        decided = judged is not None and judged.outcome != "undecided"
        assert row["reward"] == (judged.reward if decided and judged else None)


def test_chats_have_the_page_as_the_user_s_turn(told: Told) -> None:
    found = json_rows(told.out["trl"] / "chats.jsonl")
    begun = {fact.episode: fact.instruction for fact in told.facts(EpisodeStarted)}
    answers = {(step.episode, step.index): step.answer for step in told.facts(StepTaken)}
    shown = {f"{begun[row['episode']]}\n\n{render_lines(page(0))}" for row in found}
    assert {row["messages"][0]["content"] for row in found} <= shown
    for row in found:
        roles = [one["role"] for one in row["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        given = [one["content"] for one in row["messages"][1::2]]
        assert given == [answers[row["episode"], index] for index in range(len(given))]


def test_pairs_are_first_answers_of_a_winner_and_a_loser_of_the_same_group(told: Told) -> None:
    found = json_rows(told.out["trl"] / "pairs.jsonl")
    group = {f.episode: f.group for f in told.facts(EpisodeRequested)}
    verdict = {f.episode: f.judgment.outcome for f in reversed(told.facts(EpisodeJudged))}
    answer = {f.episode: unpack_ids(f.action_ids) for f in told.facts(StepTaken) if f.index == 0}
    tokenizer = load_tokenizer(policy_folder("base"))
    assert found
    for pair in found:
        winner, loser = pair["chosen_episode"], pair["rejected_episode"]
        assert group[winner] == group[loser] == pair["group"]
        assert (verdict[winner], verdict[loser]) == ("success", "failure")
        assert pair["prompt"] == tokenizer.decode(unpack_ids(FIRST_PROMPT))
        assert pair["chosen"] == tokenizer.decode(answer[winner])
        assert pair["rejected"] == tokenizer.decode(answer[loser])


def test_a_dataset_s_messages_are_those_of_the_chats(told: Told) -> None:
    chats = {row["episode"]: row["messages"] for row in json_rows(told.out["trl"] / "chats.jsonl")}
    table = pyarrow.dataset.dataset(told.out["dataset"] / "data").to_table()
    assert {row["episode"]: row["messages"] for row in table.to_pylist()} == chats


def test_logs_of_inspect_hold_every_judged_episode_once_with_the_training_judge_s_score(told: Told) -> None:
    first = {f.episode: f.judgment for f in reversed(told.facts(EpisodeJudged)) if f.judge.name == "rules"}
    ended = {fact.episode for fact in told.facts(EpisodeEnded)}
    found: dict[str, dict[str, Any]] = {}
    for file in told.out["inspect"].glob("*.eval"):
        with zipfile.ZipFile(file) as log:
            samples = [json.loads(log.read(name)) for name in log.namelist() if name.startswith("samples/")]
            assert [one["id"] for one in json.loads(log.read("summaries.json"))] == [
                one["id"] for one in samples
            ]
            header = json.loads(log.read("header.json"))
            assert header["results"]["total_samples"] == len(samples)
            assert {one["metadata"]["origin"] for one in samples} == set(header["eval"]["tags"])
            found |= {one["id"]: one["scores"]["rules"] for one in samples}
    assert found.keys() == first.keys() & ended
    grades = {"success": "C", "failure": "I"}
    for episode, score in found.items():
        judgment = first[episode]
        assert score["explanation"] == judgment.reason
        assert grades.get(judgment.outcome) == (None if score["value"] != score["value"] else score["value"])


def test_a_pair_is_a_prompt_that_a_winner_and_a_loser_answered_differently() -> None:
    lines = [
        [TrlLine(*one) for one in episode]
        for episode in (
            [("p", "a"), ("q", "b")],
            [("p", "a"), ("q", "c"), ("r", "d")],
            [("other", "a")],
        )
    ]
    assert list(first_difference(lines[0], lines[1])) == [("q", "b", "c")]
    assert list(first_difference(lines[1], lines[0])) == [("q", "c", "b")]
    assert list(first_difference(lines[0], lines[0])) == []
    assert list(first_difference(lines[0], lines[2])) == []


# --- which, and where to


def test_only_what_is_asked_for_is_written(told: Told, tmp_path: Path) -> None:
    wanted = {row.episode for row in list_episodes(told.connection, outcome="success", limit=10_000)}
    assert call(told, "--to", str(tmp_path / "a"), "--outcome", "success").exit_code == 0
    found = pq.read_table(tmp_path / "a" / "episodes.parquet").to_pylist()
    assert {row["episode"] for row in found} == wanted
    verdicts = pq.read_table(tmp_path / "a" / "verdicts.parquet").to_pylist()
    assert {row["episode"] for row in verdicts} == wanted
    updates = pq.read_table(tmp_path / "a" / "updates.parquet").num_rows
    assert updates == len(rows(told, "updates")), "of no episode"


def test_as_of_a_position_only_what_stood_there_then_is_told(told: Told, tmp_path: Path) -> None:
    judged = next(one for one in told.recorded if isinstance(one.fact, EpisodeJudged))
    before = judged.position - 1
    folder = tmp_path / "then"
    assert (
        call(told, "--to", str(folder), "--format", "jsonl", "--as-of", str(before), "--json").exit_code == 0
    )
    assert len((folder / "facts.jsonl").read_bytes().splitlines()) == before
    (document,) = (folder / "episodes.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(document, type=EpisodeDocument).verdicts == ()


def test_a_folder_that_holds_something_is_left_alone(told: Told, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = call(told, "--to", str(tmp_path))
    assert isinstance(done.exception, ExportRefused)
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]


def test_an_export_that_fails_leaves_nothing(told: Told, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    asyncio.run(told_archive(copy, groups=2))
    for segment in (copy / "segments").iterdir():
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.write_bytes(bytes(content))
    done = CliRunner().invoke(app, ["export", str(copy), "--to", str(tmp_path / "out")])
    assert done.exit_code != 0
    assert {one.name for one in tmp_path.iterdir()} == {"copy"}


def test_what_a_killed_export_left_is_dropped_by_the_next_and_one_at_work_is_not_disturbed(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".out.unfinished"
    (left / "data").mkdir(parents=True)
    (left / "data" / "train-00000").write_text("torn")
    (left / "steps.parquet").write_text("torn")
    with whole_folder(tmp_path / "out") as mine:
        assert list(mine.iterdir()) == []
        (mine / "whole").write_text("all of it")
        with pytest.raises(ExportRefused, match="another export"), whole_folder(tmp_path / "out"):
            pass
        assert not (tmp_path / "out").exists()
    assert [one.relative_to(tmp_path).as_posix() for one in sorted(tmp_path.rglob("*"))] == [
        "out",
        "out/whole",
    ]


def test_files_and_folders_are_durable_before_they_take_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def renamed(place: Path, target: Path) -> Path:
        order.append("renamed")
        return rename(place, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    with whole_folder(tmp_path / "out") as mine:
        (mine / "data").mkdir()
        (mine / "data" / "train").write_text("x")
    before, after = order[: order.index("renamed")], order[order.index("renamed") + 1 :]
    assert sorted(before) == [".out.unfinished", "data", "train"]
    assert after == [tmp_path.name]


def test_a_disk_that_does_not_take_it_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match="failed and was deleted"), whole_folder(tmp_path / "out"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    (tmp_path / "file").write_text("x")
    with pytest.raises(ExportFailed, match="failed and was deleted"), whole_folder(tmp_path / "file" / "out"):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_an_episode_that_would_be_a_file_elsewhere_is_refused() -> None:
    assert file_name("ep_1", "json") == "ep_1.json"
    for name in ("../ep", "a/b", ".hidden", "", "a\x00"):
        with pytest.raises(ExportRefused):
            file_name(name, "json")


def test_one_episode_as_a_file_is_the_one_of_the_whole_export(told: Told) -> None:
    ended = told.facts(EpisodeEnded)[0].episode
    position = len(told.stored)
    found = export_episode(told.source, told.connection, ended, format_name="atif", position=position)
    assert found.content == (told.out["atif"] / f"{ended}.json").read_bytes()
    found = export_episode(told.source, told.connection, ended, format_name="json", position=position)
    assert found.content in (told.out["jsonl"] / "episodes.jsonl").read_bytes().splitlines()
    for name, episode in (("csv", ended), ("html", "ep_none")):
        with pytest.raises(NotInReadModel):
            export_episode(told.source, told.connection, episode, format_name=name, position=position)


# --- the guide


def test_the_guide_names_every_column() -> None:
    text = DOCS.read_text()
    for table, columns in TABLES.items():
        told_here = text.split(f"### {table}\n", 1)[1].split("\n#", 1)[0]
        for one in columns:
            assert f"| `{one.name}` | {one.says} |" in told_here


def test_the_queries_of_the_guide_work(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run-1").symlink_to(told.source.folder)
    for language, block in re.findall(r"```(bash|python|sql)\n(.*?)```", DOCS.read_text(), re.DOTALL):
        if language == "bash":
            for line in block.splitlines():
                words = line.split("#")[0].split()
                if words[:2] == ["hindcast", "export"]:
                    done = CliRunner().invoke(app, words[1:])
                    assert done.exit_code == 0, f"{line}\n{done.output}{done.exception}"
        elif language == "python":
            exec(compile(block, "docs/exports.md", "exec"), {})
        else:
            assert duckdb.connect().sql(block).fetchall()


# --- verifiers


def test_traces_of_verifiers_hold_the_exact_tokens_of_every_step(told: Told) -> None:
    lines = (told.out["verifiers"] / "traces.jsonl").read_text().splitlines()
    steps: dict[str, list[StepTaken]] = {}
    for fact in told.facts(StepTaken):
        steps.setdefault(fact.episode, []).append(fact)
    episodes = [json.loads(line) for line in lines]
    assert [one["id"] for one in episodes] == [one.episode for one in told.facts(EpisodeEnded)] != []
    for episode in episodes:
        (trace,) = episode["traces"]
        nodes = trace["nodes"]
        answers = [at for at, node in enumerate(nodes) if node.get("sampled")]
        for at, fact in zip(answers, steps[episode["id"]], strict=True):
            path, place = [], at
            while place is not None:
                path.append(nodes[place])
                place = nodes[place]["parent"]
            tokens = [token for node in reversed(path) for token in node["token_ids"]]
            assert tokens == [*unpack_ids(fact.prompt_ids).tolist(), *unpack_ids(fact.action_ids).tolist()]
            assert nodes[at]["logprobs"] == unpack_floats(fact.logprobs).tolist()
        assert not any(any(node["mask"]) for node in nodes if not node.get("sampled"))


def test_traces_of_verifiers_are_read_by_the_import_with_their_rewards(told: Told) -> None:
    found = [one for _, one in conversations_of(told.out["verifiers"] / "traces.jsonl")]
    rewards = {
        one.episode: one.judgment.reward
        for one in told.facts(EpisodeJudged)
        if one.judge.name == "rules" and one.judgment.outcome != "undecided"
    }
    ended = told.facts(EpisodeEnded)
    assert len(found) == len(ended)
    compared = 0
    for conversation, end in zip(found, ended, strict=True):
        last = [one for one in told.facts(StepTaken) if one.episode == end.episode][-1]
        assert conversation.turns[-1].action_ids == tuple(unpack_ids(last.action_ids).tolist())
        if end.episode in rewards:
            scores = conversation.evidence.probes["scores"]
            assert scores["reward"]["value"] == rewards[end.episode]
            compared += 1
    assert compared > 5


def test_a_prompt_that_begins_with_an_earlier_sequence_continues_its_branch() -> None:
    prompts = [([1, 2], [3]), ([1, 2, 3, 4], [5]), ([1, 9], [3]), ([1, 2, 3, 4, 5, 6], [7])]
    facts = [
        msgspec.structs.replace(bare_step("e", at), prompt_ids=pack_ids(prompt), action_ids=pack_ids(answer))
        for at, (prompt, answer) in enumerate(prompts)
    ]
    messages = [{"role": role, "content": ""} for _ in prompts for role in ("user", "assistant")]
    nodes = nodes_of([AssembledStep(position=1, occurred_ns=0, fact=fact) for fact in facts], messages)
    assert [node["parent"] for node in nodes] == [None, 0, 1, 2, None, 4, 3, 6]
    assert [node["token_ids"] for node in nodes[::2]] == [[1, 2], [4], [1, 9], [6]]
