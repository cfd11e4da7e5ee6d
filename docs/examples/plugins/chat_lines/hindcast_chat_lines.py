"""Exports steps as chat messages, one line of JSON for each: what trainers for supervised fine-tuning read.

{"messages": [{"role": "user", "content": PAGE}, {"role": "assistant", "content": ANSWER}]}
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hindcast.api import AssembledEpisode, Exporter, ExportSources, Writer


class ChatLinesOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`--option` of this exporter."""

    system: str = ""
    """Text of a system message that begins every line; empty: none."""


class ChatLinesWriter(Writer):
    """Writes `steps.jsonl`."""

    def __init__(self, folder: Path, sources: ExportSources, options: ChatLinesOptions) -> None:
        self._file = (folder / "steps.jsonl").open("wb")
        self._sources = sources
        self._system = [{"role": "system", "content": options.system}] if options.system else []
        self._steps = 0

    def episode(self, played: AssembledEpisode) -> None:
        """Write a line for each step whose page was recorded."""
        for step in played.steps:
            page = self._sources.page(step.fact.observation)
            if page is None:
                continue
            text = f"{played.started.instruction}\n\n{self._sources.text(page)}"
            messages = [
                *self._system,
                {"role": "user", "content": text},
                {"role": "assistant", "content": step.fact.answer},
            ]
            self._file.write(msgspec.json.encode({"messages": messages}) + b"\n")
            self._steps += 1

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Close the file."""
        self._file.close()
        return {"steps": self._steps}


EXPORTER = Exporter(
    writes="`steps.jsonl`, a line of chat messages for each step",
    writer=ChatLinesWriter,
    options=ChatLinesOptions,
)
