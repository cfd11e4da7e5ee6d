"""`hindcast export --format dataset`: a folder that Hugging Face `datasets` loads: parquet shards and a card.

A row is an episode with its steps. `train` has the training episodes. Evaluations play held-out tasks, so they are left out
unless they are asked for; they are the split `test`. Shards are split by size; the front matter of `README.md` lists columns
and splits, and its text gives the provenance.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from hindcast.app.exports.chat import chat_of
from hindcast.app.exports.exporter import LEFT_OUT, Exporter, ExportSources, Origin, Writer
from hindcast.app.exports.parquet import TableFile
from hindcast.core.grammar.answer_parser import split_form
from hindcast.events.log.episode_assembler import AssembledEpisode, AssembledStep

ROWS_IN_GROUP = 100
"""Rows of a row group; an episode with its pages has about 100 kB."""
DATA, CARD = "data", "README.md"
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
LARGEST = "1M<n<10M"
DTYPES = {pa.string(): "string", pa.int64(): "int64", pa.float64(): "float64"}
"""Arrow type -> name of the type in `datasets`."""

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
MESSAGE: dict[str, Any] = {"role": _TEXT, "content": _TEXT}
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
    "messages": pa.list_(pa.struct(list(MESSAGE.items()))),
    "steps": pa.list_(pa.struct(list(STEP.items()))),
}
"""The columns; docs/exports.md explains them."""
SCHEMA = pa.schema(list(EPISODE.items()))


class Split(msgspec.Struct):
    """One split."""

    name: str
    examples: int = 0
    bytes: int = 0


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


class DatasetOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`--option` of this exporter."""

    shard_bytes: int = 256 * 1024 * 1024
    """Size of a shard's text before compression."""
    evaluations: bool = False
    """Whether episodes of evaluations are written, too, as the split `test`; `--origin evaluation` writes them alone."""


class DatasetWriter(Writer):
    """Writes datasets."""

    def __init__(self, folder: Path, sources: ExportSources, options: DatasetOptions) -> None:
        self._folder = folder
        self._sources = sources
        self._evaluations = options.evaluations or sources.origin.filter.origin in LEFT_OUT
        data = folder / DATA
        data.mkdir()
        self._splits = {
            name: _Shards(data, name, shard_bytes=options.shard_bytes) for name in ("train", "test")
        }

    def episode(self, played: AssembledEpisode) -> None:
        """Add a row."""
        evaluates = played.request.origin in LEFT_OUT
        if evaluates and not self._evaluations:
            return
        name = "test" if evaluates else "train"
        row = row_of(played, self._sources)
        size = len(row["instruction"]) + sum(len(message["content"]) for message in row["messages"])
        size += sum(
            len(step["page"] or "") + len(step["thought"]) + len(step["answer"]) for step in row["steps"]
        )
        self._splits[name].add(row, size)

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Finish the shards and write the card, which contains the counts."""
        for shards in self._splits.values():
            shards.finish()
        splits = [shards.split for shards in self._splits.values() if shards.split.examples]
        card = Card(self._sources.origin, log_digest=log_digest, splits=splits, schema=SCHEMA)
        (self._folder / CARD).write_text(card.text(), encoding="utf-8")
        return {split.name: split.examples for split in splits}


def row_of(played: AssembledEpisode, sources: ExportSources) -> dict[str, Any]:
    """Convert an episode to a row."""
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
        "messages": chat_of(played, sources),
        "steps": [_step(step, sources) for step in played.steps],
    }


def _step(step: AssembledStep, sources: ExportSources) -> dict[str, Any]:
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


class Card(msgspec.Struct, frozen=True):
    """Content of the card."""

    origin: Origin
    log_digest: str
    splits: Sequence[Split]
    schema: Any
    """A pyarrow schema."""

    def text(self) -> str:
        """The whole file."""
        return "\n".join(["---", *self._front_matter(), "---", "", *self._words(), ""])

    def _front_matter(self) -> Iterator[str]:
        examples = sum(split.examples for split in self.splits)
        total = sum(split.bytes for split in self.splits)
        yield f"pretty_name: {json.dumps(f'Episodes of run {self.origin.run}')}"
        yield "license: unknown  # choose one that fits the pages, the tasks and the policy"
        yield "tags:"
        yield from (f"- {tag}" for tag in ("agents", "web-agents", "trajectories", "hindcast"))
        yield "size_categories:"
        yield f"- {next((name for limit, name in SIZES if examples < limit), LARGEST)}"
        if self.splits:
            yield "configs:"
            yield "- config_name: default"
            yield "  data_files:"
            for split in self.splits:
                yield f"  - split: {split.name}"
                yield f"    path: data/{split.name}-*"
        yield "dataset_info:"
        yield "  features:"
        yield from _features(self.schema, indent="  ")
        yield "  splits:" if self.splits else "  splits: []"
        for split in self.splits:
            yield f"  - name: {split.name}"
            yield f"    num_bytes: {split.bytes}"
            yield f"    num_examples: {split.examples}"
        yield f"  dataset_size: {total}"

    def _words(self) -> Iterator[str]:
        origin = self.origin
        chosen = {k: v for k, v in msgspec.to_builtins(origin.filter).items() if v is not None}
        yield f"# Episodes of run {origin.run}"
        yield ""
        yield "Episodes of a web agent: instruction, pages as the policy read them, answers, actions, verdict."
        yield "`messages` has the same as a chat: the page is the user's turn, the answer the assistant's."
        yield ""
        yield "## Provenance"
        yield ""
        yield "| | |"
        yield "|---|---|"
        yield f"| run | `{origin.run}` |"
        yield f"| log | positions 1 to {origin.position} |"
        yield f"| digest of the log up to there | `{self.log_digest}` |"
        yield f"| policy | `{origin.settings.policy.base}`, versions in `policy_version_low` and `policy_version_high` |"
        yield f"| judge | `{origin.settings.judge.judges[0]}` |"
        yield f"| pages written by | `{origin.settings.actors.renderer}` |"
        yield f"| episodes | {', '.join(f'{k} = {v}' for k, v in chosen.items()) or 'all that ended by themselves'} |"
        yield f"| Hindcast | `{origin.code_rev}` |"
        yield ""
        yield "`hindcast audit` on the run's log, or on an archive of it, gives the same digest if the data come from that log."
        yield ""
        yield "## Licence"
        yield ""
        yield "The publisher of the dataset fills this in: pages belong to their sites, tasks to their authors."


def _features(schema: Any, *, indent: str) -> Iterator[str]:
    """Yield the columns as `datasets` lists them: names with a `dtype`, or with a `list` of columns."""
    for field in schema:
        yield f"{indent}- name: {field.name}"
        if pa.types.is_list(field.type):
            yield f"{indent}  list:"
            yield from _features(field.type.value_type, indent=f"{indent}  ")
        else:
            yield f"{indent}  dtype: {DTYPES[field.type]}"


EXPORTER = Exporter(
    writes="a folder as Hugging Face's `datasets` loads it", writer=DatasetWriter, options=DatasetOptions
)
