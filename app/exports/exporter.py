"""Interface of exporters: plugins that write a run in one format, for `hindcast export` and downloads of single episodes.

    log ──> facts ────────────────────> Writer.fact
              └─> EpisodeAssembler ───> Writer.episode ──> pages and images from the blobs, verdicts from the read model

Most formats have one file for each episode: they define an `EpisodeFile` and need no writer.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection

from hindcast.app.exports import EXPORTERS
from hindcast.app.exports.output_folder import file_name
from hindcast.app.runs.sources import Source
from hindcast.core.domain.observation import Page
from hindcast.core.errors import PluginError
from hindcast.core.plugins import NoOptions, find_plugin
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import Settings
from hindcast.core.structs import convert, decode_msgpack
from hindcast.events.catalogue.curriculum import IMPORTED, NEVER_TRAINED
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.episode_queries import EpisodeFilter, VerdictRow, verdicts_of


class Verdict(msgspec.Struct, frozen=True):
    """Verdict of the training judge on an episode."""

    outcome: str | None
    """None: there is no verdict yet."""
    reward: float | None


LEFT_OUT = NEVER_TRAINED - {IMPORTED}
"""Origins that datasets leave out by default. A run of another system has no episodes but imported ones."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Provenance of an export."""

    run: str
    position: int
    """Position of the last event in the export."""
    filter: EpisodeFilter
    settings: Settings
    code_rev: str
    """Code revision of the Hindcast that writes the export."""


class RecordedPages:
    """The pages of a run, and its other blobs."""

    def __init__(self, blobs: BlobStore, settings: Settings) -> None:
        """`settings`: of the run; they name the form in which its policy reads pages."""
        self._blobs = blobs
        self._renderer = settings.actors.renderer

    def page(self, ref: BlobRef | None) -> Page | None:
        """A recorded page; None: it was not recorded, or was deleted."""
        content = self.content(ref)
        return None if content is None else decode_msgpack(content, Page)

    def text(self, page: Page) -> str:
        """A page as the run's policy reads it."""
        return RENDERERS[self._renderer](page)

    def content(self, ref: BlobRef | None) -> bytes | None:
        """A blob's content; None: it was not recorded, or was deleted. Raises BlobCorrupt."""
        blobs = self._blobs
        return None if ref is None or not blobs.has(ref) else blobs.get(ref)


class ExportSources(RecordedPages):
    """Data that an exporter may read in addition to the events."""

    def __init__(
        self, source: Source, origin: Origin, *, connection: Connection, chosen: Mapping[str, Verdict]
    ) -> None:
        """`chosen`: the selected episodes with their verdicts."""
        super().__init__(source.blobs, origin.settings)
        self.source = source
        self.origin = origin
        self.connection = connection
        self.chosen = chosen

    def verdicts(self, episode: str) -> list[VerdictRow]:
        """Verdicts of every judge on an episode."""
        return verdicts_of(self.connection, episode, as_of=self.origin.position)


class Writer:
    """Writes one export. A format overrides the methods that it needs."""

    def fact(self, recorded: Recorded) -> None:
        """Take every event up to the position, in order, except the events of episodes that are not selected."""

    def episode(self, played: AssembledEpisode) -> None:
        """Take every selected episode that ended without being abandoned or cancelled, in the order of their ends."""

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Finish the files; returns counts by kind. `log_digest`: rolling digest of everything up to the position."""
        return {}


class EpisodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """An episode as one file."""

    suffix: str
    """Suffix of the file's name, without a dot."""
    media_type: str
    content: Callable[[AssembledEpisode, ExportSources], bytes]


class Exporter(msgspec.Struct, frozen=True, kw_only=True):
    """One format of `hindcast export`."""

    writes: str
    """Short description of what the exporter writes."""
    episode_file: EpisodeFile | None = None
    """An episode as a file, which the page also offers for download; None: the format has no such file."""
    writer: Callable[[Path, ExportSources, Any], Writer] | None = None
    """Creates a writer from folder, sources and options; None: one file for each episode."""
    options: type[msgspec.Struct] = NoOptions
    """Options that `--option` may set."""
    state_version: int = 1
    """Version of the format: raise it when readers of older exports no longer understand newer ones."""


class EpisodeFileWriter(Writer):
    """Writes a file for each episode."""

    def __init__(self, folder: Path, sources: ExportSources, file: EpisodeFile) -> None:
        self.folder = folder
        self.sources = sources
        self._file = file
        self._episodes = 0

    def episode(self, played: AssembledEpisode) -> None:
        """Write a file."""
        name = file_name(played.name, self._file.suffix)
        (self.folder / name).write_bytes(self._file.content(played, self.sources))
        self._episodes += 1

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Return the number of episodes."""
        return {"episodes": self._episodes}


def find_exporter(name: str) -> Exporter:
    """Find the exporter of a format. Raises PluginError if there is none or it is invalid."""
    found = find_plugin(EXPORTERS, name, Exporter)
    problems = check_exporter(found)
    if problems:
        raise PluginError(f"the exporter {name!r} cannot be used: {'; '.join(problems)}")
    return found


def check_exporter(found: Exporter) -> list[str]:
    """Describe the mistakes of an exporter, one sentence each."""
    problems = []
    if found.writer is None and found.episode_file is None:
        problems.append("it has neither a writer nor an episode_file")
    if not found.writes:
        problems.append("its `writes` does not say what it writes")
    try:
        convert({}, found.options)
    except (TypeError, msgspec.ValidationError) as error:
        problems.append(f"its options have no defaults: {error}")
    return problems


def open_writer(
    name: str, exporter: Exporter, folder: Path, sources: ExportSources, options: msgspec.Struct
) -> Writer:
    """Open the writer of a format."""
    if exporter.writer is not None:
        return exporter.writer(folder, sources, options)
    assert exporter.episode_file is not None, f"{name} was checked when it was found"
    return EpisodeFileWriter(folder, sources, exporter.episode_file)
