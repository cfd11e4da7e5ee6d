"""Archive a run: on request into any folder, or continuously while it runs (`storage.archive`), with deletion of old pages."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source
from hindcast.core.errors import DiskFull, ForeignLog, HindcastError, SettingsError
from hindcast.events.archive.errors import ArchiveDamaged
from hindcast.events.archive.format import START
from hindcast.events.archive.reader import ArchiveReader
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.catalogue import RunForked
from hindcast.events.codec import decode, decode_envelope
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.joined_log import RunLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.archive.archiver import Archiver, ArchiveReport
from hindcast.storage.archive.log_mover import Mover, OpenEpisodes
from hindcast.storage.blobs.page_retention import PRODUCER as PAGES
from hindcast.storage.blobs.page_retention import PageKeeper

LEASES_KEPT = 10
"""Number of lease times for which events stay in the broker: after that, no process can still end an episode of theirs.

A page may also be stored for as long before an event names it.
"""
ROOM_S = 10.0
"""Seconds between two attempts to write to a full disk."""
logger = structlog.get_logger(__name__)


class ArchivingHeldUp(HindcastError):
    """The archiver cannot continue, but the run can."""


async def archive_source(
    source: Source,
    folder: Path,
    *,
    follow: bool,
    pages: bool,
    on_event: Callable[[int, int | None], None],
    on_blob: Callable[[int], None],
) -> ArchiveReport:
    """Archive all recorded events; with `follow`, also later ones until the task is canceled, which is no error.

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
                if not follow:  # the requested archive is incomplete
                    raise
            return archiver.report()
        finally:
            await asyncio.to_thread(writer.close)


async def finish_archive(handle: RunHandle) -> ArchiveReport | None:
    """Archive the last events of a stopped run, and their blobs. Returns None if the run has no archive.

    The role `archiver` stops together with the other roles, before their last events.

    Raises:
        ArchiveBusy, ArchiveDamaged, ForeignLog, CorruptEvent, DiskFull: see `Archiver` and `ArchiveWriter`.

    """
    if handle.archive is None:
        return None
    async with handle.connect_log("archiver") as log, handle.connect_stream("archiver") as stream:
        writer = await _open_writer(handle, handle.archive, log, stream)
        try:
            archiver = Archiver(stream, handle.blobs, writer, pages=True)
            await archiver.run(follow=False)
            return archiver.report()
        finally:
            await asyncio.to_thread(writer.close)


async def keep_archiving(handle: RunHandle, log: RunLog, publisher: Publisher) -> None:
    """Run the role `archiver` for ever; cancel it to stop.

    If `storage.archive` names a folder: archive the run's own log and delete old events from the broker. A fork archives only
    its own events, because its prefix belongs to its parent. If `storage.keep_page_episodes` is set: delete old snapshots of
    pages, also while the archive waits for disk space.

    Raises:
        ArchivingHeldUp: the archive is damaged, or another log's. A person must act; meanwhile the log only grows.
        ArchiveBusy, CorruptEvent: see `Archiver`.

    """
    settings, archivers = handle.settings.storage, _Current()
    if not handle.wants_archiver:
        raise SettingsError(
            "storage.archive is empty and storage.keep_page_episodes is 0: there is nothing for an archiver to do"
        )
    try:
        async with asyncio.TaskGroup() as tasks:
            if handle.archive is not None:
                tasks.create_task(_keep_an_archive(handle, handle.archive, log, publisher, archivers))
            if settings.keep_page_episodes:
                tasks.create_task(_keep_pages(handle, log, archivers))
    except* ArchivingHeldUp as group:
        raise group.exceptions[0] from None


class _Current:
    """Holds the running archiver; None between two of them."""

    archiver: Archiver | None = None


async def _keep_pages(handle: RunHandle, log: RunLog, archivers: _Current) -> None:
    async with handle.publisher(log, f"{PAGES}.1") as publisher:
        keeper = PageKeeper(
            log,
            handle.blobs,
            publisher,
            handle.settings,
            first=handle.first,
            unnamed_s=LEASES_KEPT * handle.settings.episode_lease_s,
            copies=(lambda: archivers.archiver) if handle.archive is not None else None,
        )
        await keeper.keep_on()


async def _keep_an_archive(
    handle: RunHandle, folder: Path, log: RunLog, publisher: Publisher, archivers: _Current
) -> None:
    """Archive events and delete them from the broker; on a full disk of the archive, wait and try again."""
    while True:
        try:
            await _archive_while_there_is_room(handle, folder, log, publisher, archivers)
        except* (ArchiveDamaged, ForeignLog) as group:
            raise ArchivingHeldUp(
                f"run {handle.name} continues, but it is no longer archived and its log stays in the broker: "
                f"{group.exceptions[0]}"
            ) from group
        except* DiskFull as group:
            archivers.archiver = None
            logger.error("the archive waits for space; the run continues", reason=str(group.exceptions[0]))
        await asyncio.sleep(ROOM_S)


async def _archive_while_there_is_room(
    handle: RunHandle, folder: Path, log: RunLog, publisher: Publisher, archivers: _Current
) -> None:
    async with handle.connect_stream("archiver") as stream:
        writer = await _open_writer(handle, folder, log, stream)
        try:
            await _archive_and_move(handle, log, stream, writer, publisher, archivers)
        finally:
            await asyncio.to_thread(writer.close)


async def _open_writer(handle: RunHandle, folder: Path, log: RunLog, stream: JetStreamLog) -> ArchiveWriter:
    return await asyncio.to_thread(
        ArchiveWriter.open,
        folder,
        run=handle.name,
        first=handle.first,
        digest=await _digest_before(stream),
        lineage=log.lineage,
        segment_bytes=handle.settings.storage.segment_bytes,
    )


async def _archive_and_move(
    handle: RunHandle,
    log: RunLog,
    stream: JetStreamLog,
    writer: ArchiveWriter,
    publisher: Publisher,
    archivers: _Current,
) -> None:
    settings, open_episodes = handle.settings, OpenEpisodes()
    await asyncio.to_thread(_recall, writer, open_episodes, after=stream.began - 1)
    archiver = archivers.archiver = Archiver(
        stream, handle.blobs, writer, pages=True, watch=open_episodes.take
    )
    mover = Mover(
        log,
        stream,
        writer.folder,
        publisher,
        open_episodes,
        keep_events=settings.storage.keep_live_events,
        keep_s=LEASES_KEPT * settings.episode_lease_s,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(archiver.run(follow=True))
        tasks.create_task(mover.keep_on())


async def _digest_before(stream: JetStreamLog) -> bytes:
    """Rolling digest of the log before a stream's first event; for a fork, that of its parent's log."""
    first = await stream.read(after=stream.began - 1, limit=1) if stream.began else []
    recorded = decode(first[0]) if first else None
    return recorded.fact.parent_digest if recorded and isinstance(recorded.fact, RunForked) else START


def _recall(writer: ArchiveWriter, open_episodes: OpenEpisodes, *, after: int) -> None:
    """Fold events that are in both the stream and the archive: requests of open episodes never left the stream."""
    reader, position = ArchiveReader(writer.folder), max(after, writer.first - 1)
    while batch := reader.following(position):
        for stored in batch:
            open_episodes.take(stored.position, decode_envelope(stored))
        position = batch[-1].position
