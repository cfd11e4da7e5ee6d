"""`hindcast export --format inspect`: logs of Inspect (inspect-ai), one for each origin, with a sample for each judged episode.

A log is a zip file in the `.eval` format, as inspect-ai 0.3.285 reads it (log version 2, inspect.aisi.org.uk/eval-logs.html):

    samples/EPISODE_epoch_1.json   a sample: messages, score, metadata, model usage, timings
    summaries.json                 the samples without their messages
    header.json                    identity, results and statistics

`inspect view` and `inspect_ai.log` open it. Nothing of inspect-ai is imported.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from hindcast.app.exports.chat import chat_of, moment, policy_name, provenance_of, reward_of
from hindcast.app.exports.exporter import Exporter, ExportSources, Writer
from hindcast.app.exports.output_folder import file_name
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.ids import digest_hex
from hindcast.core.plugins import NoOptions
from hindcast.events.envelope import Recorded
from hindcast.events.log.episode_assembler import AssembledEpisode, AssembledStep
from hindcast.storage.readmodel.episode_queries import VerdictRow
from hindcast.storage.readmodel.query_parts import training_judge

LOG_VERSION = 2
GRADES = {"success": "C", "failure": "I", "undecided": math.nan}
"""Outcome -> value of a score: Inspect's grades, and the value that its metrics leave out."""


class InspectLog:
    """The log of one origin's episodes. Memory holds a few numbers for each task family."""

    def __init__(
        self, folder: Path, sources: ExportSources, *, origin: str, judge: str, begun_ns: int
    ) -> None:
        """`begun_ns`: time of the run's first event."""
        self.samples = 0
        self._sources = sources
        self._origin = origin
        self._judge = judge
        self._created = moment(begun_ns // 10**9 * 10**9)
        self._task = f"{sources.origin.run}-{origin}"
        self._task_id = digest_hex(self._task.encode())[:22]
        parts = (self._created, self._task, self._task_id)
        name = "_".join(re.sub("[_/:]", "-", part) for part in parts)
        self._zip = ZipFile(folder / f"{name}.eval", "w", ZIP_DEFLATED)
        self._summaries = TemporaryFile(dir=folder)  # noqa: SIM115 (`close` closes it)
        self._scored: dict[str, tuple[int, int]] = {}
        """Successes and decided episodes, by family."""
        self._usage: dict[str, int] = {}
        self._first_ns, self._last_ns = begun_ns, begun_ns

    def add(self, played: AssembledEpisode, verdict: VerdictRow) -> None:
        """Write an episode's sample."""
        sample = sample_of(played, verdict, self._sources)
        self._write(f"samples/{file_name(f'{played.name}_epoch_1', 'json')}", sample)
        summary = {key: value for key, value in sample.items() if key not in ("messages", "output")}
        summary |= {"completed": True, "message_count": len(sample["messages"])}
        self._summaries.write((b"," if self.samples else b"[") + _encoded(summary))
        if verdict.outcome != "undecided":
            won, tried = self._scored.get(played.family, (0, 0))
            self._scored[played.family] = won + (verdict.outcome == "success"), tried + 1
        for usage in sample["model_usage"].values():
            self._usage = {name: count + self._usage.get(name, 0) for name, count in usage.items()}
        self._first_ns = min(self._first_ns, played.started_ns) if self.samples else played.started_ns
        self._last_ns = max(self._last_ns, played.ended_ns)
        self.samples += 1

    def close(self, log_digest: str) -> None:
        """Complete the zip file."""
        self._summaries.write(b"]")
        self._summaries.seek(0)
        with self._zip.open("summaries.json", "w") as summaries:
            while part := self._summaries.read(1 << 20):
                summaries.write(part)
        self._summaries.close()
        self._write("header.json", self._header(log_digest))
        self._zip.close()

    def _header(self, log_digest: str) -> dict[str, Any]:
        origin = self._sources.origin
        model = origin.settings.policy.base
        return {
            "version": LOG_VERSION,
            "status": "success",
            "eval": {
                "eval_id": digest_hex(f"{log_digest}{self._task_id}{origin.filter}".encode())[:22],
                "run_id": log_digest[:22],
                "created": self._created,
                "task": self._task,
                "task_id": self._task_id,
                "dataset": {"name": origin.run, "samples": self.samples, "shuffled": False},
                "model": model,
                "config": {},
                "scorers": [{"name": self._judge}],
                "tags": [self._origin],
                "metadata": {
                    "run": origin.run,
                    "position": origin.position,
                    "log_digest": log_digest,
                    "hindcast": origin.code_rev,
                },
            },
            "results": {
                "total_samples": self.samples,
                "completed_samples": self.samples,
                "scores": [self._score()],
            },
            "stats": {
                "started_at": moment(self._first_ns),
                "completed_at": moment(self._last_ns),
                "model_usage": {model: self._usage} if self._usage else {},
            },
        }

    def _score(self) -> dict[str, Any]:
        """Accuracy with its standard error, and by family, as Inspect's metrics `accuracy` and `stderr` compute them."""
        tried = sum(count for _, count in self._scored.values())
        rate = sum(won for won, _ in self._scored.values()) / tried if tried else math.nan
        metrics: dict[str, dict[str, Any]] = {
            "accuracy": {"name": "accuracy", "value": rate},
            "stderr": {
                "name": "stderr",
                "value": math.sqrt(rate * (1 - rate) / (tried - 1)) if tried > 1 else 0.0,
            },
        }
        for family, (won, count) in sorted(self._scored.items()):
            metrics[family] = {"name": family, "group": "accuracy by family", "value": won / count}
        return {
            "name": self._judge,
            "scorer": self._judge,
            "scored_samples": tried,
            "unscored_samples": self.samples - tried,
            "metrics": metrics,
        }

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        self._zip.writestr(name, _encoded(content))


def sample_of(played: AssembledEpisode, verdict: VerdictRow, sources: ExportSources) -> dict[str, Any]:
    """Convert an episode to Inspect's `EvalSample`. `verdict`: the training judge's."""
    task, ended, base = played.task, played.ended, sources.origin.settings.policy.base
    messages: list[dict[str, Any]] = [
        message | {"id": f"{played.name}-{number}"} for number, message in enumerate(chat_of(played, sources))
    ]
    for message, step in zip(messages[1::2], played.steps, strict=True):
        message |= {"model": policy_name(step.fact, base), "metadata": _step_metadata(step)}
    sampled = [step.fact for step in played.steps if policy_name(step.fact, base)]
    read = sum(len(unpack_ids(fact.prompt_ids)) for fact in sampled)
    written = sum(len(unpack_ids(fact.action_ids)) for fact in sampled)
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    return {
        "id": played.name,
        "epoch": 1,
        "uuid": played.name,
        "input": played.started.instruction,
        "target": json.dumps(task.goal, ensure_ascii=False),
        "messages": messages,
        "output": {
            "model": base,
            "choices": [{"message": messages[-1], "stop_reason": "stop"}] if messages else [],
        },
        "scores": {
            verdict.judge: {
                "value": GRADES[verdict.outcome],
                "answer": ended.evidence.answer,
                "explanation": verdict.reason,
                "metadata": {
                    "outcome": verdict.outcome,
                    "reward": reward_of(verdict.outcome, verdict.reward),
                    "judge_version": verdict.judge_version,
                    "probability": verdict.probability,
                },
            }
        },
        "metadata": {
            **provenance_of(played),
            "seed": task.seed,
            "policy_version_low": ended.policy_versions[0],
            "policy_version_high": ended.policy_versions[1],
            "temperature": played.request.temperature,
            "ended": ended.reason,
            "position": played.position,
        },
        "model_usage": {base: usage} if sampled else {},
        "started_at": moment(played.started_ns),
        "completed_at": moment(played.ended_ns),
        "total_time": ended.duration_ms / 1000,
        "working_time": sum(map(_working_ms, played.steps)) / 1000,
    }


def _step_metadata(step: AssembledStep) -> dict[str, Any]:
    fact = step.fact
    return {
        "position": step.position,
        "url": fact.url,
        "result": fact.result,
        "detail": fact.detail,
        "observe_ms": fact.observe_ms,
        "generate_ms": fact.generate_ms,
        "act_ms": fact.act_ms,
    }


def _working_ms(step: AssembledStep) -> float:
    return step.fact.observe_ms + step.fact.generate_ms + step.fact.act_ms


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


class InspectWriter(Writer):
    """Writes a log for each origin."""

    def __init__(self, folder: Path, sources: ExportSources, _: NoOptions) -> None:
        self._folder = folder
        self._sources = sources
        self._judge = training_judge(sources.connection, as_of=sources.origin.position)
        self._logs: dict[str, InspectLog] = {}
        self._begun_ns: int | None = None

    def fact(self, recorded: Recorded) -> None:
        """Take the time of the run's first event."""
        if self._begun_ns is None:
            self._begun_ns = recorded.envelope.occurred_ns

    def episode(self, played: AssembledEpisode) -> None:
        """Write an episode that the training judge has judged."""
        verdict = next((one for one in self._sources.verdicts(played.name) if one.judge == self._judge), None)
        if verdict is None:
            return
        origin = played.request.origin
        if origin not in self._logs:
            assert self._begun_ns is not None, "a log begins with an event that belongs to no episode"
            self._logs[origin] = InspectLog(
                self._folder, self._sources, origin=origin, judge=self._judge, begun_ns=self._begun_ns
            )
        self._logs[origin].add(played, verdict)

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Complete the logs; returns the number of samples by origin."""
        for log in self._logs.values():
            log.close(log_digest)
        return {f"{origin} samples": log.samples for origin, log in self._logs.items()}


EXPORTER = Exporter(
    writes="a log of Inspect for each origin, with a sample for each judged episode", writer=InspectWriter
)
