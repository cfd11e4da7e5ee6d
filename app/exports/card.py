"""Dataset card of an export: front matter in YAML for the Hub and `datasets`, then the provenance in words."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from hindcast.app.exports.writer import Origin

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
LARGEST = "1M<n<10M"
DTYPES = {pa.string(): "string", pa.int64(): "int64", pa.float64(): "float64"}
"""Arrow's types as `datasets` calls them."""


class Split(msgspec.Struct):
    """One split."""

    name: str
    examples: int = 0
    bytes: int = 0


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
        yield "license: unknown  # yours to say: of the pages, the tasks and the policy"
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
        yield "`hindcast audit` on the run's log, or on an archive of it, gives the same digest: the data are those of that log."
        yield ""
        yield "## Licence"
        yield ""
        yield "To be filled in by who publishes: pages belong to their sites, tasks to their authors."


def _features(schema: Any, *, indent: str) -> Iterator[str]:
    """Columns in the form of `datasets`: a list of names with a `dtype`, or a `list` of such."""
    for field in schema:
        yield f"{indent}- name: {field.name}"
        if pa.types.is_list(field.type):
            yield f"{indent}  list:"
            yield from _features(field.type.value_type, indent=f"{indent}  ")
        else:
            yield f"{indent}  dtype: {DTYPES[field.type]}"
