"""Writes a run or an archive into a folder in one of the formats, or one of its episodes as a file for download.

Reads the log once up to a position, and the read model as of it. Produces files in a folder, and `export.json` with the run,
the position and the log digest.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection

from hindcast.app.exports import EXPORTERS
from hindcast.app.exports.exporter import (
    ExportSources,
    Origin,
    Verdict,
    Writer,
    find_exporter,
    open_writer,
)
from hindcast.app.exports.output_folder import file_name, whole_folder
from hindcast.app.revision import code_revision
from hindcast.app.runs.sources import Source
from hindcast.core.errors import HindcastError
from hindcast.core.plugins import plugin_names, read_options
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue import EpisodeEnded, RunStarted
from hindcast.events.log.episode_assembler import AssembledEpisode, EpisodeAssembler
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.reader import read
from hindcast.storage.readmodel.episode_queries import EpisodeFilter, matching_episodes, show_episode
from hindcast.storage.readmodel.query_parts import NotInReadModel, position_of

MANIFEST = "export.json"


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an export, also written to `export.json`."""

    format: str
    run: str
    position: int
    log_digest: str
    """Rolling sha256 of the events up to the position, as in `batch.planned`."""
    recipe: str
    base_policy: str
    base_policy_sha256: str
    filter: dict[str, Any]
    counts: dict[str, int]
    code_rev: str


class EpisodeDownload(NamedTuple):
    """Name, media type and content of an episode's file."""

    name: str
    content: bytes
    media_type: str


def open_sources(
    source: Source, connection: Connection, *, position: int, wanted: EpisodeFilter
) -> ExportSources:
    """Collect the data sources of an export and the selected episodes, at about 100 bytes each."""
    shared: dict[tuple[str | None, float | None], Verdict] = {}
    chosen = {
        row.episode: shared.setdefault((row.outcome, row.reward), Verdict(row.outcome, row.reward))
        for row in matching_episodes(connection, wanted, as_of=position)
    }
    origin = _origin_of(source, position=position, wanted=wanted)
    return ExportSources(source, origin, connection=connection, chosen=chosen)


async def export(
    source: Source,
    connection: Connection,
    folder: Path,
    *,
    format_name: str,
    wanted: EpisodeFilter,
    options: Mapping[str, str] = {},
    as_of: int | None = None,
    on_event: Callable[[int, int], None] = lambda _at, _last: None,
) -> Exported:
    """Write a run's log, up to the position of its read model, into a new folder. `on_event` gets position and last position.

    Raises:
        PluginError, SettingsError: there is no such exporter, or it has no such option.
        ExportRefused: the folder is not empty, or an episode's id cannot be a file name.
        NotInReadModel: the read model has not reached the position.
        CorruptEvent, ForeignLog, UnknownVersion: the log cannot be trusted or understood.

    """
    exporter = find_exporter(format_name)
    chosen = read_options(
        exporter.options, options, of=f"--option of the exporter {format_name!r}", strict=False
    )
    position = position_of(connection, as_of)
    sources = open_sources(source, connection, position=position, wanted=wanted)
    with whole_folder(folder) as unfinished:
        writer = open_writer(format_name, exporter, unfinished, sources, chosen)
        return await write_export(
            sources,
            writer,
            unfinished,
            format_name=format_name,
            on_event=lambda at: on_event(at, position),
        )


async def write_export(
    sources: ExportSources,
    writer: Writer,
    folder: Path,
    *,
    format_name: str,
    on_event: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Pass the log through the writer once; afterwards `folder` contains the files.

    Raises:
        CorruptEvent, ForeignLog, UnknownVersion: the log cannot be trusted or understood.

    """
    origin, chosen = sources.origin, sources.chosen
    assembler, digest = EpisodeAssembler(wants=lambda request: request.episode in chosen), RollingDigest()
    started: RunStarted | None = None
    async with sources.source.connect_log() as log:
        async for recorded in read(log, until=origin.position):
            digest.advance(recorded.digest)
            fact = recorded.fact
            if isinstance(fact, RunStarted) and started is None:
                started = fact
            about = getattr(fact, "episode", None)
            if about is None or origin.filter.everything or about in chosen:
                writer.fact(recorded)
            played = assembler.take(recorded)
            if played is not None and isinstance(played.end, EpisodeEnded):
                writer.episode(played)
            on_event(recorded.position)
    if started is None:
        raise HindcastError(f"the log of run {origin.run} has no events up to position {origin.position} yet")
    done = Exported(
        format=format_name,
        run=origin.run,
        position=origin.position,
        log_digest=digest.value.hex(),
        recipe=started.recipe,
        base_policy=started.base_policy_name,
        base_policy_sha256=started.base_policy.sha256,
        filter={k: v for k, v in msgspec.to_builtins(origin.filter).items() if v is not None},
        # in a thread of its own, because a writer may ask pages that read the log
        counts=dict(await asyncio.to_thread(writer.close, digest.value.hex())),
        code_rev=origin.code_rev,
    )
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(done), indent=2) + b"\n")
    return done


def export_episode(
    source: Source, connection: Connection, episode: str, *, format_name: str, position: int
) -> EpisodeDownload:
    """Export one ended episode as of a position. Blocks. Only declared plugins are used, because the format comes from a URL.

    Raises:
        NotInReadModel: there is no such episode or format, or the episode has not ended.
        HindcastError: the log or the blobs cannot be read.

    """
    names = plugin_names(EXPORTERS)
    file = find_exporter(format_name).episode_file if format_name in names else None
    if file is None:
        raise NotInReadModel(
            f"an episode cannot be downloaded in the format {format_name!r}; {advice(format_name, names)}"
        )
    row = show_episode(connection, episode, as_of=position).episode
    played = None
    if row.state == "ended" and row.requested_position is not None:
        played = asyncio.run(_played(source, episode, after=row.requested_position - 1, until=position))
    if played is None:
        raise NotInReadModel(
            f"episode {episode!r} has not ended as of position {position}: it is {row.state}"
        )
    sources = ExportSources(
        source,
        _origin_of(source, position=position, wanted=EpisodeFilter()),
        connection=connection,
        chosen={episode: Verdict(row.outcome, row.reward)},
    )
    suffix = file.suffix if file.suffix == format_name else f"{format_name}.{file.suffix}"
    return EpisodeDownload(file_name(episode, suffix), file.content(played, sources), file.media_type)


def _origin_of(source: Source, *, position: int, wanted: EpisodeFilter) -> Origin:
    return Origin(
        run=source.name,
        position=position,
        filter=wanted,
        settings=source.settings,
        code_rev=code_revision(),
    )


async def _played(source: Source, episode: str, *, after: int, until: int) -> AssembledEpisode | None:
    assembler = EpisodeAssembler(wants=lambda request: request.episode == episode)
    async with source.connect_log() as log:
        async for recorded in read(log, after=after, until=until, check=False, strict=False):
            played = assembler.take(recorded)
            if played is not None:
                return played
    return None
