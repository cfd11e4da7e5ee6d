"""Logs of Inspect, read by the real inspect-ai."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import log as inspect_log
from inspect_ai.scorer import SampleScore, Score, accuracy, stderr
from sqlalchemy import Connection

from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.folded_read_model import folded
from hindcast.storage.readmodel.episode_queries import EpisodeFilter, matching_episodes, verdicts_of
from stories.export_story import HOSTILE, export_archive

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_archive(tmp_path_factory.mktemp("inspect"), "inspect")


@pytest.fixture(scope="module")
def connection(exported: Path) -> Iterator[Connection]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HINDCAST_HOME", str(exported.parent / "home"))
        model = folded(ArchiveSource(exported.parent / "tale"))
        with model.reading() as connection:
            yield connection
        model.close()


@pytest.fixture(scope="module")
def logs(exported: Path) -> dict[str, Any]:
    found = map(inspect_log.read_eval_log, inspect_log.list_eval_logs(str(exported)))
    return {log.eval.tags[0]: log for log in found}


def test_every_judged_episode_is_a_sample_in_the_log_of_its_origin(
    logs: dict[str, Any], connection: Connection
) -> None:
    judged: dict[str, set[str]] = {}
    for row in matching_episodes(connection, EpisodeFilter(state="ended")):
        if row.outcome is not None:
            judged.setdefault(row.origin, set()).add(row.episode)
    assert {origin: {sample.id for sample in log.samples} for origin, log in logs.items()} == judged
    for log in logs.values():
        assert log.status == "success"
        assert log.results.total_samples == len(log.samples) == log.eval.dataset.samples


def test_a_sample_is_the_chat_with_score_metadata_usage_and_timings(
    logs: dict[str, Any], connection: Connection
) -> None:
    rows = {row.episode: row for row in matching_episodes(connection, EpisodeFilter())}
    for sample in (sample for log in logs.values() for sample in log.samples):
        row = rows[sample.id]
        assert sample.input == HOSTILE
        assert sample.messages[0].text.startswith(f"{HOSTILE}\n\n")
        assert [message.role for message in sample.messages] == ["user", "assistant"] * row.steps
        assert sample.output.completion == sample.messages[-1].text
        (verdict,) = [one for one in verdicts_of(connection, sample.id) if one.judge == "rules"]
        (score,) = sample.scores.values()
        assert (score.explanation, score.metadata["outcome"]) == (verdict.reason, row.outcome)
        assert math.isnan(score.value) if row.outcome == "undecided" else score.value in ("C", "I")
        known = sample.metadata
        assert (known["origin"], known["group"], known["family"]) == (
            row.origin,
            row.group_id,
            f"{row.environment}/{row.family}",
        )
        assert known["task"] == f"{known['family']}:{known['seed']}"
        assert (known["policy_version_low"], known["policy_version_high"]) == (
            row.version_low,
            row.version_high,
        )
        assert sample.total_time == pytest.approx(row.duration_ms / 1000)
        assert sample.working_time > 0
        assert all(usage.input_tokens > 0 < usage.output_tokens for usage in sample.model_usage.values())


def test_metrics_are_those_that_inspect_computes_from_the_samples(logs: dict[str, Any]) -> None:
    for log in logs.values():
        (score,) = log.results.scores
        grades = [one.value for sample in log.samples for one in sample.scores.values()]
        decided = [SampleScore(score=Score(value=float(one == "C"))) for one in grades if one in ("C", "I")]
        assert (score.scored_samples, score.unscored_samples) == (len(decided), len(grades) - len(decided))
        assert score.metrics["accuracy"].value == pytest.approx(accuracy()(decided))
        assert score.metrics["stderr"].value == pytest.approx(stderr()(decided))


def test_summaries_and_single_samples_are_read_without_the_rest(exported: Path) -> None:
    for info in inspect_log.list_eval_logs(str(exported)):
        header = inspect_log.read_eval_log(info, header_only=True)
        summaries = inspect_log.read_eval_log_sample_summaries(info)
        assert len(summaries) == header.results.total_samples
        for summary in summaries:
            sample = inspect_log.read_eval_log_sample(info, id=summary.id)
            assert (summary.completed, summary.message_count) == (True, len(sample.messages))
            assert json.dumps(summary.metadata) == json.dumps(sample.metadata)
