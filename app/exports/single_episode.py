"""One episode as a file for download."""

import asyncio
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from hindcast.app.exports.atif import trajectory_of
from hindcast.app.exports.document import document_of
from hindcast.app.exports.episodes import AssembledEpisode, EpisodeAssembler
from hindcast.app.exports.export import origin_of
from hindcast.app.exports.html import EpisodeFile
from hindcast.app.exports.output_folder import file_name
from hindcast.app.exports.writer import Sources, Verdict
from hindcast.app.runs.sources import Source
from hindcast.core.text.nearest import advice
from hindcast.events.log.reader import read
from hindcast.storage.readmodel.episode_filter import EpisodeFilter
from hindcast.storage.readmodel.queries import show_episode
from hindcast.storage.readmodel.query_parts import NotInReadModel

FORMATS = {"html": "text/html; charset=utf-8", "atif": "application/json", "json": "application/json"}
"""Format -> media type."""


class EpisodeAsFile(NamedTuple):
    """Name, media type and content of the file."""

    name: str
    content: bytes
    media_type: str


def episode_as_file(
    source: Source, connection: Connection, episode: str, *, format_name: str, position: int
) -> EpisodeAsFile:
    """Export one ended episode as of a position. Blocks.

    Raises:
        NotInReadModel: there is no such episode or format, or the episode has not ended.
        HindcastError: the log or the blobs cannot be read.

    """
    if format_name not in FORMATS:
        raise NotInReadModel(
            f"an episode is no file of format {format_name!r}; {advice(format_name, FORMATS)}"
        )
    row = show_episode(connection, episode, as_of=position).episode
    played = None
    if row.state == "ended" and row.requested_position is not None:
        played = asyncio.run(_played(source, episode, after=row.requested_position - 1, until=position))
    if played is None:
        raise NotInReadModel(
            f"episode {episode!r} has not ended as of position {position}: it is {row.state}"
        )
    sources = Sources(
        origin_of(source, position=position, wanted=EpisodeFilter()),
        connection=connection,
        blobs=source.blobs,
        chosen={episode: Verdict(row.outcome, row.reward)},
    )
    if format_name == "html":
        content = EpisodeFile(source).text(played, sources).encode()
    elif format_name == "atif":
        content = msgspec.json.encode(trajectory_of(played, sources))
    else:
        content = msgspec.json.encode(document_of(played, sources))
    suffix = {"html": "html", "atif": "atif.json", "json": "json"}[format_name]
    return EpisodeAsFile(file_name(episode, suffix), content, FORMATS[format_name])


async def _played(source: Source, episode: str, *, after: int, until: int) -> AssembledEpisode | None:
    assembler = EpisodeAssembler({episode})
    async with source.connect_log() as log:
        async for recorded in read(log, after=after, until=until, check=False, strict=False):
            played = assembler.take(recorded)
            if played is not None:
                return played
    return None
