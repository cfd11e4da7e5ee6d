"""`hindcast export --format jsonl`: `facts.jsonl`, every event, and `episodes.jsonl`, every episode with its pages."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hindcast.app.exports.document import document_of
from hindcast.app.exports.exporter import Exporter, ExportSources, Writer
from hindcast.app.exports.lines import to_line
from hindcast.core.plugins import NoOptions
from hindcast.events.envelope import Recorded
from hindcast.events.log.episode_assembler import AssembledEpisode

FACTS, EPISODES = "facts.jsonl", "episodes.jsonl"


class JsonlWriter(Writer):
    """Writes JSON lines."""

    def __init__(self, folder: Path, sources: ExportSources, _: NoOptions) -> None:
        self._sources = sources
        self._facts = (folder / FACTS).open("wb")
        self._episodes = (folder / EPISODES).open("wb")
        self._counts = {"facts": 0, "episodes": 0}

    def fact(self, recorded: Recorded) -> None:
        """Write an event's line."""
        self._facts.write(to_line(recorded) + b"\n")
        self._counts["facts"] += 1

    def episode(self, played: AssembledEpisode) -> None:
        """Write an episode's line."""
        self._episodes.write(msgspec.json.encode(document_of(played, self._sources)) + b"\n")
        self._counts["episodes"] += 1

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Close the files; returns the counts."""
        self._facts.close()
        self._episodes.close()
        return self._counts


EXPORTER = Exporter(
    writes="`facts.jsonl`, every event; `episodes.jsonl`, every episode with its pages", writer=JsonlWriter
)
