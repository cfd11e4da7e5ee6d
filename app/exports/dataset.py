"""`hindcast export --format dataset`: a folder that Hugging Face `datasets` loads: parquet shards and a card.

A row is an episode with its steps. `train` has the training episodes, `test` the evaluations. Shards are cut by size; the
front matter of `README.md` lists columns and splits, and its text gives the provenance.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from hindcast.app.exports.card import Card, Split
from hindcast.app.exports.episodes import AssembledEpisode, AssembledStep
from hindcast.app.exports.parquet import TableFile
from hindcast.app.exports.writer import Sources
from hindcast.core.grammar.answer_form import split_form
from hindcast.events.envelope import Recorded

SHARD_BYTES = 256 * 1024 * 1024
"""Size of a shard's text before compression."""
ROWS_IN_GROUP = 100
"""Rows of a row group; an episode with its pages has about 100 kB."""
DATA, CARD = "data", "README.md"

_TEXT, _INTEGER = pa.string(), pa.int64()
STEP: dict[str, Any] = {
    "step": _INTEGER,
    "url": _TEXT,
    "page": _TEXT,
    "thought": _TEXT,
    "answer": _TEXT,
    "action": _TEXT,
    "element": _INTEGER,
    "argument": _TEXT,
    "result": _TEXT,
}
EPISODE: dict[str, Any] = {
    "episode": _TEXT,
    "run": _TEXT,
    "environment": _TEXT,
    "family": _TEXT,
    "seed": _INTEGER,
    "instruction": _TEXT,
    "origin": _TEXT,
    "policy_version_low": _INTEGER,
    "policy_version_high": _INTEGER,
    "reason": _TEXT,
    "answer": _TEXT,
    "final_url": _TEXT,
    "outcome": _TEXT,
    "reward": pa.float64(),
    "steps": pa.list_(pa.struct(list(STEP.items()))),
}
"""The columns; docs/exports.md explains them."""
SCHEMA = pa.schema(list(EPISODE.items()))


class _Shards:
    """The files of one split."""

    def __init__(self, folder: Path, name: str, *, shard_bytes: int) -> None:
        self._folder = folder
        self._shard_bytes = shard_bytes
        self._files: list[Path] = []
        self._open: TableFile | None = None
        self._in_shard = 0
        self.split = Split(name)

    def add(self, row: dict[str, Any], size: int) -> None:
        """Add a row of `size` bytes."""
        if self._open is None or self._in_shard >= self._shard_bytes:
            self._close()
            self._files.append(self._folder / f"{self.split.name}-{len(self._files):05}")
            self._open = TableFile(self._files[-1], SCHEMA, rows_in_group=ROWS_IN_GROUP)
        self._open.add(row)
        self._in_shard += size
        self.split.examples += 1
        self.split.bytes += size

    def finish(self) -> None:
        """Rename the files, so that their names contain their number."""
        self._close()
        for file in self._files:
            file.rename(file.with_name(f"{file.name}-of-{len(self._files):05}.parquet"))

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open, self._in_shard = None, 0


class DatasetWriter:
    """Writes datasets; see `app.exports.writer.Writer`."""

    def __init__(self, folder: Path, sources: Sources, *, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder = folder
        self._sources = sources
        data = folder / DATA
        data.mkdir()
        self._splits = {name: _Shards(data, name, shard_bytes=shard_bytes) for name in ("train", "test")}

    def fact(self, recorded: Recorded) -> None:
        """Ignore single events: a row is a whole episode."""

    def episode(self, played: AssembledEpisode) -> None:
        """Add a row."""
        name = "test" if played.request.origin == "evaluation" else "train"
        row = row_of(played, self._sources)
        size = len(row["instruction"]) + sum(
            len(step["page"] or "") + len(step["thought"]) + len(step["answer"]) for step in row["steps"]
        )
        self._splits[name].add(row, size)

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Write the card, last because it contains the counts."""
        for shards in self._splits.values():
            shards.finish()
        splits = [shards.split for shards in self._splits.values() if shards.split.examples]
        card = Card(self._sources.origin, log_digest=log_digest, splits=splits, schema=SCHEMA)
        (self._folder / CARD).write_text(card.text(), encoding="utf-8")
        return {split.name: split.examples for split in splits}


def row_of(played: AssembledEpisode, sources: Sources) -> dict[str, Any]:
    """An episode as a row."""
    task, ended = played.request.task, played.ended
    verdict = sources.chosen[ended.episode]
    low, high = ended.policy_versions
    return {
        "episode": ended.episode,
        "run": sources.origin.run,
        "environment": task.environment,
        "family": task.family,
        "seed": task.seed,
        "instruction": played.started.instruction,
        "origin": played.request.origin,
        "policy_version_low": low,
        "policy_version_high": high,
        "reason": ended.reason,
        "answer": ended.evidence.answer,
        "final_url": ended.evidence.final_url,
        "outcome": verdict.outcome,
        "reward": verdict.reward,
        "steps": [_step(step, sources) for step in played.steps],
    }


def _step(step: AssembledStep, sources: Sources) -> dict[str, Any]:
    fact, action = step.fact, step.fact.action
    page = sources.page(fact.observation)
    thought, answer = split_form(fact.answer)
    return {
        "step": fact.index,
        "url": fact.url,
        "page": None if page is None else sources.text(page),
        "thought": thought,
        "answer": answer,
        "action": action and action.name,
        "element": action and action.element,
        "argument": action and action.argument,
        "result": fact.result,
    }
