"""Archiving a run on request: its log and its blobs into a folder, once or for as long as somebody wants."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from app.sources import Source
from events.archive.writer import ArchiveWriter
from storage.archiving import Archiver, ArchiveReport


async def archive_source(
    source: Source,
    folder: Path,
    *,
    follow: bool,
    pages: bool,
    on_event: Callable[[int, int | None], None],
    on_blob: Callable[[int], None],
) -> ArchiveReport:
    """Write what is there, with `follow` also what comes; stopped by cancelling it, which is no error.

    Raises:
        ArchiveBusy, ArchiveDamaged, ForeignLog, CorruptEvent, DiskFull: see `Archiver` and `ArchiveWriter`.

    """
    async with source.connect_log() as log:
        identity = await log.identity()
        last = None if follow else identity.last
        writer = await asyncio.to_thread(
            ArchiveWriter.open,
            folder,
            run=log.run,
            first=identity.first or identity.last + 1,
            lineage=log.lineage,
            segment_bytes=source.settings.storage.segment_bytes,
        )
        try:
            archiver = Archiver(
                log,
                source.blobs,
                writer,
                pages=pages,
                on_event=lambda position: on_event(position, last),
                on_blob=on_blob,
            )
            try:
                await archiver.run(follow=follow)
            except asyncio.CancelledError:
                if not follow:  # what was asked for is not done
                    raise
            return archiver.report()
        finally:
            await asyncio.to_thread(writer.close)
