"""`hindcast export`: writes a run or an archive into a folder in one of the formats."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, assert_never, get_args

from sqlalchemy import Connection

from hindcast.app.exports.output_folder import whole_folder
from hindcast.app.exports.writer import Exported, Origin, Sources, Writer, choose, write_export
from hindcast.app.revision import code_revision
from hindcast.app.runs.sources import Source
from hindcast.storage.readmodel.episode_filter import EpisodeFilter
from hindcast.storage.readmodel.query_parts import position_of

Format = Literal["parquet", "jsonl", "atif", "sts", "html", "dataset"]
FORMATS: tuple[Format, ...] = get_args(Format)


def origin_of(source: Source, *, position: int, wanted: EpisodeFilter) -> Origin:
    """Provenance of an export of a source."""
    return Origin(
        run=source.name,
        position=position,
        filter=wanted,
        settings=source.settings,
        code_rev=code_revision(),
    )


def _open_writer(name: Format, folder: Path, sources: Sources, source: Source) -> Writer:
    """Open a format's writer; imports its modules only now, because some take a second."""
    match name:
        case "parquet":
            from hindcast.app.exports.parquet import ParquetWriter

            return ParquetWriter(folder, sources)
        case "jsonl":
            from hindcast.app.exports.jsonl import JsonlWriter

            return JsonlWriter(folder, sources)
        case "atif":
            from hindcast.app.exports.atif import AtifWriter

            return AtifWriter(folder, sources)
        case "sts":
            from hindcast.app.exports.sts import StsWriter

            return StsWriter(folder, sources)
        case "html":
            from hindcast.app.exports.html import HtmlWriter

            return HtmlWriter(folder, sources, source)
        case "dataset":
            from hindcast.app.exports.dataset import DatasetWriter

            return DatasetWriter(folder, sources)
        case _:
            assert_never(name)


async def export(
    source: Source,
    connection: Connection,
    folder: Path,
    *,
    format_name: Format,
    wanted: EpisodeFilter,
    as_of: int | None = None,
    on_event: Callable[[int, int], None] = lambda _at, _last: None,
) -> Exported:
    """Write a run's log, as far as its read model goes, into a folder that is not there yet. `on_event`: position, last one.

    Raises:
        ExportRefused: the folder holds something, or an episode cannot be a file.
        NotInReadModel: the read model has not come that far.
        CorruptEvent, ForeignLog, UnknownVersion: the log cannot be trusted or understood.

    """
    origin = origin_of(source, position=position_of(connection, as_of), wanted=wanted)
    sources = Sources(origin, connection=connection, blobs=source.blobs, chosen=choose(connection, origin))
    with whole_folder(folder) as unfinished:
        writer = _open_writer(format_name, unfinished, sources, source)
        async with source.connect_log() as log:
            return await write_export(
                log,
                sources,
                writer,
                unfinished,
                format_name=format_name,
                on_event=lambda at: on_event(at, origin.position),
            )
