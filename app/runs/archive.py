"""Archiving a run: on request into any folder, or for good while it goes on (`storage.archive`); its pages with it."""

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
"""Events stay in the broker for so many leases: whoever might still end an episode of theirs has given up by then.

As long a page may be stored before an event names it.
"""
ROOM_S = 10.0
"""Between two tries to write to a full disk."""
logger = structlog.get_logger(__name__)


class ArchivingHeldUp(HindcastError):
    """The archiver cannot go on; the run can."""


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


async def finish_archive(handle: RunHandle) -> ArchiveReport | None:
    """Archive what a run recorded up to its end, and the blobs of that, once nothing works on the run any more.

    None: the run has no archive. The role `archiver` ends with the others, before they have said their last.

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
    """What the role `archiver` does, for ever; cancel it to stop.

    Where `storage.archive` names a folder: archive the run's own log and let the broker forget what is old. Of a fork only
    what it recorded itself: its prefix is its parent's business. Where `storage.keep_page_episodes` says so: let go of
    snapshots of pages, also while the archive waits for room.

    Raises:
        ArchivingHeldUp: the archive is damaged, or another log's: a person must look; the log only grows meanwhile.
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
    """The archiver at work; None between two of them."""

    archiver: Archiver | None = None


async def _keep_pages(handle: RunHandle, log: RunLog, archivers: _Current) -> None:
    async with Publisher(
        log, producer=f"{PAGES}.1", code_rev=handle.code_rev, settings=handle.settings.log
    ) as publisher:
        keeper = PageKeeper(
            log,
            handle.blobs,
            publisher,
            handle.settings,
            first=handle.first,
            unnamed_s=LEASES_KEPT * handle.settings.curriculum.lease_s,
            copies=(lambda: archivers.archiver) if handle.archive is not None else None,
        )
        await keeper.keep_on()


async def _keep_an_archive(
    handle: RunHandle, folder: Path, log: RunLog, publisher: Publisher, archivers: _Current
) -> None:
    """Archive and move; where the archive's disk is full, wait: the run goes on until its own disks or its log are."""
    while True:
        try:
            await _archive_while_there_is_room(handle, folder, log, publisher, archivers)
        except* (ArchiveDamaged, ForeignLog) as group:
            raise ArchivingHeldUp(
                f"run {handle.name} goes on, but is not archived any further and stays in the broker: "
                f"{group.exceptions[0]}"
            ) from group
        except* DiskFull as group:
            archivers.archiver = None
            logger.error("the archive waits for room; the run goes on", reason=str(group.exceptions[0]))
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
        keep_s=LEASES_KEPT * settings.curriculum.lease_s,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(archiver.run(follow=True))
        tasks.create_task(mover.keep_on())


async def _digest_before(stream: JetStreamLog) -> bytes:
    """Rolling digest of the log before a stream's first event: a fork's says it of its parent's."""
    first = await stream.read(after=stream.began - 1, limit=1) if stream.began else []
    recorded = decode(first[0]) if first else None
    return recorded.fact.parent_digest if recorded and isinstance(recorded.fact, RunForked) else START


def _recall(writer: ArchiveWriter, open_episodes: OpenEpisodes, *, after: int) -> None:
    """Fold what is both in the stream and in the archive: a request that is open never left the stream."""
    reader, position = ArchiveReader(writer.folder), max(after, writer.first - 1)
    while batch := reader.following(position):
        for stored in batch:
            open_episodes.take(stored.position, decode_envelope(stored))
        position = batch[-1].position
