"""`hindcast export --format parquet`: one file for each table, written in groups of rows, so that memory does not grow."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hindcast.app.exports.exporter import Exporter, ExportSources, Verdict, Writer
from hindcast.app.exports.tables import TABLES, schema_of
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.plugins import NoOptions
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRelabeled,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
    UpdateApplied,
    UpdateSkipped,
    VerdictDisputed,
    WeightsPublished,
)
from hindcast.events.envelope import Recorded

ROWS_IN_GROUP = 4096
COMPRESSION = "zstd"
Row = dict[str, Any]


class TableFile:
    """One table while it is written."""

    def __init__(self, file: Path, schema: Any, *, rows_in_group: int = ROWS_IN_GROUP) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema, compression=COMPRESSION)
        self._rows: list[Row] = []
        self._rows_in_group = rows_in_group
        self.written = 0

    def add(self, row: Row) -> None:
        """Add a row; missing columns are null."""
        self._rows.append(row)
        self.written += 1
        if len(self._rows) >= self._rows_in_group:
            self._flush()

    def close(self) -> None:
        """Write the rest and close the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows.clear()


class ParquetWriter(Writer):
    """Writes tables."""

    def __init__(self, folder: Path, sources: ExportSources, _: NoOptions) -> None:
        self._chosen = sources.chosen
        self._tables = {name: TableFile(folder / f"{name}.parquet", schema_of(name)) for name in TABLES}
        self._open: dict[str, Row] = {}
        """Incomplete rows of running episodes."""

    def fact(self, recorded: Recorded) -> None:
        """Add the rows of an event."""
        at: Row = {"position": recorded.position, "occurred_ns": recorded.envelope.occurred_ns}
        match recorded.fact:
            case EpisodeRequested() as fact if fact.episode in self._chosen:
                self._open[fact.episode] = _requested(fact, at)
            case EpisodeStarted() as fact if fact.episode in self._open:
                self._open[fact.episode] |= {
                    "state": "started",
                    "actor": fact.actor,
                    "instruction": fact.instruction,
                    "renderer": fact.renderer,
                }
            case StepTaken() as fact if fact.episode in self._chosen:
                self._step(fact, at | {"code_rev": recorded.envelope.code_rev})
            case EpisodeEnded() | EpisodeAbandoned() | EpisodeCancelled() as fact:
                self._end(fact, at)
            case EpisodeJudged() as fact:
                self._tables["verdicts"].add(at | _judged(fact))
            case VerdictDisputed() as fact:
                self._tables["disputes"].add(at | _disputed(fact))
            case EpisodeRelabeled() as fact:
                for row in _relabelled(fact):
                    self._tables["relabels"].add(at | row)
            case UpdateApplied() | UpdateSkipped() as fact:
                self._tables["updates"].add(at | _updated(fact))
            case WeightsPublished() as fact:
                self._tables["policies"].add(at | _published(fact))
            case _:
                pass

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Write the rows of running episodes, and close the files."""
        for row in self._open.values():
            self._tables["episodes"].add(row | self._verdict(row["episode"]))
        for table in self._tables.values():
            table.close()
        return {name: table.written for name, table in self._tables.items()}

    def _verdict(self, episode: str) -> Row:
        said = self._chosen.get(episode, Verdict(None, None))
        return {"outcome": said.outcome, "reward": said.reward}

    def _step(self, fact: StepTaken, at: Row) -> None:
        self._tables["steps"].add(at | _stepped(fact))
        versions, logprobs = unpack_ids(fact.versions).tolist(), unpack_floats(fact.logprobs).tolist()
        for place, token in enumerate(unpack_ids(fact.action_ids).tolist()):
            self._tables["tokens"].add(
                {
                    "position": at["position"],
                    "episode": fact.episode,
                    "step": fact.index,
                    "place": place,
                    "token_id": token,
                    "logprob": logprobs[place],
                    "version": versions[place],
                }
            )

    def _end(self, fact: EpisodeEnded | EpisodeAbandoned | EpisodeCancelled, at: Row) -> None:
        row = self._open.pop(fact.episode, None)
        if row is None:
            return
        row |= {"terminal_position": at["position"], "terminal_ns": at["occurred_ns"], "reason": fact.reason}
        if isinstance(fact, EpisodeEnded):
            low, high = fact.policy_versions
            row |= {
                "state": "ended",
                "steps": fact.steps,
                "version_low": low,
                "version_high": high,
                "answer": fact.evidence.answer,
                "final_url": fact.evidence.final_url,
                "probes": _json(fact.evidence.probes),
                "duration_ms": fact.duration_ms,
            }
        elif isinstance(fact, EpisodeAbandoned):
            row |= {"state": "abandoned", "steps": fact.steps, "detail": fact.detail}
        else:
            row |= {"state": "cancelled", "detail": fact.detail}
        self._tables["episodes"].add(row | self._verdict(fact.episode))


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _requested(fact: EpisodeRequested, at: Row) -> Row:
    task = fact.task
    return {
        "episode": fact.episode,
        "task": task.id,
        "environment": task.environment,
        "family": task.family,
        "seed": task.seed,
        "goal": _json(task.goal),
        "max_steps": task.max_steps,
        "origin": fact.origin,
        "group_id": fact.group,
        "member": fact.member,
        "group_size": fact.group_size,
        "attempt": fact.attempt,
        "phase": fact.phase,
        "temperature": fact.temperature,
        "state": "requested",
        "requested_position": at["position"],
        "requested_ns": at["occurred_ns"],
    }


def _stepped(fact: StepTaken) -> Row:
    action, picture = fact.action, fact.screenshot and fact.screenshot.image
    return {
        "episode": fact.episode,
        "step": fact.index,
        "url": fact.url,
        "observation_digest": fact.observation_digest,
        "observation_blob": fact.observation and fact.observation.sha256,
        "screenshot_blob": picture and picture.sha256,
        "answer": fact.answer,
        "action": action and action.name,
        "element": action and action.element,
        "argument": action and action.argument,
        "result": fact.result,
        "detail": fact.detail,
        "temperature": fact.sampling.temperature,
        "sampling_seed": fact.sampling.seed,
        "prompt_truncated": fact.prompt_truncated,
        "answer_from": fact.answer_from,
        "context": fact.context,
        "prompt_ids": unpack_ids(fact.prompt_ids),
        "observe_ms": fact.observe_ms,
        "generate_ms": fact.generate_ms,
        "act_ms": fact.act_ms,
    }


def _judged(fact: EpisodeJudged) -> Row:
    return {
        "episode": fact.episode,
        "task": fact.task_id,
        "judge": fact.judge.name,
        "judge_version": fact.judge.version,
        "outcome": fact.judgment.outcome,
        "reward": fact.judgment.reward,
        "reason": fact.judgment.reason,
        "model_version": fact.reading and fact.reading.model_version,
        "probability": fact.reading and fact.reading.probability,
    }


def _disputed(fact: VerdictDisputed) -> Row:
    said = {name: getattr(fact, name) for name in ("episode", "author", "outcome", "reason")}
    return said | {"judge": fact.judge.name, "judge_version": fact.judge.version}


def _relabelled(fact: EpisodeRelabeled) -> list[Row]:
    """A row for each goal; one row without a goal if none was found."""
    said: Row = {
        "episode": fact.episode,
        "relabeler": fact.relabeler.name,
        "relabeler_version": fact.relabeler.version,
        "failure": fact.failure,
    }
    return [
        said
        | {
            "place": place,
            "instruction": one.instruction,
            "family": one.family,
            "goal": _json(one.goal),
            "until_step": one.until_step,
            "relevance": list(one.relevance),
        }
        for place, one in enumerate(fact.relabels)
    ] or [said]


def _updated(fact: UpdateApplied | UpdateSkipped) -> Row:
    row: Row = {name: getattr(fact, name) for name in ("model", "update", "batch", "minibatch")}
    if isinstance(fact, UpdateSkipped):
        return row | {
            "outcome": "skipped",
            "reason": fact.reason,
            "before": fact.state,
            "after": fact.state,
        }
    return row | {
        "outcome": "applied",
        "before": fact.before,
        "after": fact.after,
        "inputs": fact.inputs,
        "metrics": list(fact.metrics.items()),
        "duration_ms": fact.duration_ms,
        "cpu_ms": fact.cpu_ms,
    }


def _published(fact: WeightsPublished) -> Row:
    return {
        "model": fact.model,
        "version": fact.version,
        "update": fact.update,
        "sha256": fact.weights.sha256,
        "size_bytes": fact.weights.size,
    }


EXPORTER = Exporter(writes="tables for DuckDB, pandas, Spark", writer=ParquetWriter)
