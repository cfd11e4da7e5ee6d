"""The archiver: a consumer of the log that writes an archive folder; its position is what is durable there.

Consumes and checks every event after the archive's last one; waits for the log (its adapter's bound) and at most
`LINGER_S` for more events to fill a frame; produces frames, then the blobs they name. After a crash the next archiver checks
that it is the same log, and continues after the last complete frame. Blobs are copied once the archiver has caught up, so
weights and checkpoints that were released meanwhile are never copied.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from hashlib import sha256
from pathlib import Path
from threading import Event
from time import monotonic

import msgspec

from hindcast.core.errors import CorruptEvent, ForeignLog, HindcastError
from hindcast.events.archive.format import FRAME_EVENTS
from hindcast.events.archive.manifest import Blobs, NamedBlob
from hindcast.events.archive.reader import ArchiveReader
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import BlobRef, Envelope, Stored
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.port import EventLog, LogIdentity
from hindcast.events.log.reader import Bookmark, check_log
from hindcast.storage.archive.archived_blobs import BlobNeeds, CopyResult, settle
from hindcast.storage.blobs.store import BlobStore

BLOBS = "blobs"
LINGER_S = 1.0
"""Seconds that single events of a quiet run wait for others before they are written as a frame."""
SETTLE_EVENTS = 20_000
"""Events after which blobs are copied although more events wait; bounds what is read again after a crash."""
SETTLE_S = 30.0
"""Seconds between two rounds of copying blobs while following: most checkpoints are released within that time."""
QUEUED_BATCHES = 8
"""Batches of the log that wait for the disk."""


class ArchiveReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an archiver did, and what the archive holds now."""

    run: str
    folder: str
    first: int
    last: int
    events: int
    """Events added."""
    segments: int
    digest: str
    """Rolling digest of the log up to `last`."""
    pages: bool
    """Whether page snapshots are kept."""
    blobs: int
    """Blobs added."""
    blob_bytes: int
    missing: tuple[NamedBlob, ...]
    """Blobs that were not released but are missing or damaged."""
    damaged: tuple[str, ...]
    """Messages about the damaged ones."""


def archive_blobs(folder: Path) -> BlobStore:
    """The blob store of an archive."""
    return BlobStore(folder / BLOBS)


class Archiver:
    """Writes one archive from one log."""

    def __init__(
        self,
        log: EventLog,
        source: BlobStore,
        writer: ArchiveWriter,
        *,
        pages: bool,
        on_event: Callable[[int], None] = lambda _: None,
        on_blob: Callable[[int], None] = lambda _: None,
        watch: Callable[[int, Envelope], None] = lambda _at, _envelope: None,
    ) -> None:
        """`on_event` gets every position that became durable, `on_blob` the number of blobs left to process, `watch` every event."""
        self._log = log
        self._source = source
        self._target = archive_blobs(writer.folder)
        self._writer = writer
        self._on_event = on_event
        self._on_blob = on_blob
        self._watch = watch
        self._began = writer.last
        self._copied = CopyResult()
        self._chains = ChainChecker(after=writer.last)
        noted = writer.manifest.blobs
        if pages and not noted.pages:
            noted = Blobs()  # page snapshots are wanted from now on: also those of earlier events
        self._blobs = msgspec.structs.replace(noted, pages=pages)
        self._needs = BlobNeeds(pages=pages, needed=noted.missing)
        self._stopping = Event()

    @property
    def settled(self) -> int:
        """Position up to which the blobs that events name were copied."""
        return self._blobs.through

    def has_copied(self, ref: BlobRef) -> bool:
        """Whether the archive holds a blob."""
        return self._target.has(ref)

    async def run(self, *, follow: bool) -> None:
        """Archive up to the current end of the log, or forever; cancel to stop, which keeps and records everything written.

        Raises:
            ForeignLog: it is another log than the one archived so far, or it lacks the next events.
            CorruptEvent: the log is damaged; the message names the position.
            DiskFull: there is no room.
        """
        identity = await self._check()
        end = None if follow else identity.last
        try:
            await asyncio.to_thread(self._recall)
            if end is None or end > self._writer.last:
                try:
                    await self._take_all(end)
                except* HindcastError as group:
                    raise group.exceptions[0] from None  # one error ends both tasks: there is no second
            await asyncio.to_thread(self._settle)
        finally:
            self._stopping.set()
            await asyncio.to_thread(self._writer.note, self._blobs)

    async def _take_all(self, end: int | None) -> None:
        """Write the log up to `end` as frames; copy blobs after many events, or at intervals while following."""
        arrived: asyncio.Queue[list[Stored]] = asyncio.Queue(QUEUED_BATCHES)
        async with asyncio.TaskGroup() as tasks:
            fetching = tasks.create_task(self._fetch(arrived, end))
            settled_s = monotonic()
            while not (fetching.done() and arrived.empty()):
                if batch := await _gather(arrived):
                    await asyncio.to_thread(self._take, batch)
                behind = self._writer.last - self._blobs.through
                is_due = end is None and monotonic() - settled_s >= SETTLE_S
                if behind >= SETTLE_EVENTS or (behind and is_due):
                    await asyncio.to_thread(self._settle)
                    settled_s = monotonic()

    async def _fetch(self, arrived: asyncio.Queue[list[Stored]], end: int | None) -> None:
        async with aclosing(self._log.tail(after=self._writer.last)) as batches:
            async for batch in batches:
                await arrived.put([stored for stored in batch if end is None or stored.position <= end])
                if end is not None and batch[-1].position >= end:
                    break
        await arrived.put([])

    async def _check(self) -> LogIdentity:
        """Check that this is the log that was archived so far, and that it has the next events."""
        writer, identity = self._writer, await self._log.identity()
        if identity.last and identity.first > writer.last + 1:
            raise ForeignLog(
                f"the log of run {self._log.run} begins at position {identity.first}, but the archive in {writer.folder} ends "
                f"at {writer.last}: the events in between are in neither. Archive the run into another folder, or continue the "
                "archive that its beginning was moved to."
            )
        if writer.last >= writer.first and identity.first <= writer.last:
            bookmark = Bookmark(position=writer.last, digest=writer.last_digest, first_digest=b"")
            await check_log(self._log, after=writer.last, bookmark=bookmark)
        return identity

    def _take(self, batch: list[Stored]) -> None:
        """Write intact events; at the first damaged one raise CorruptEvent, after writing those before it."""
        intact: list[Envelope] = []
        try:
            intact.extend(map(self._checked, batch))
        finally:
            self._writer.append(batch[: len(intact)])
            for stored, envelope in zip(batch, intact, strict=False):
                self._needs.take(stored.position, envelope)
                self._watch(stored.position, envelope)
            self._on_event(self._writer.last)

    def _checked(self, stored: Stored) -> Envelope:
        envelope = decode_envelope(stored)
        if stored.subject.split(".")[1] != envelope.run:
            raise CorruptEvent(
                f"position {stored.position} is damaged: its subject is {stored.subject}, but it was recorded by run "
                f"{envelope.run}. Run: hindcast audit {self._log.run}"
            )
        self._chains.link(stored.position, envelope, sha256(stored.data).digest())
        return envelope

    def _recall(self) -> None:
        """Read the archive's events whose blobs were not copied yet."""
        position = max(self._blobs.through, self._writer.first - 1)
        if position >= self._writer.last:
            return
        reader = ArchiveReader(self._writer.folder)
        while batch := reader.following(position):
            for stored in batch:
                self._needs.take(stored.position, decode_envelope(stored))
            position = batch[-1].position

    def _settle(self) -> None:
        through = self._writer.last
        missing = settle(
            self._needs, self._source, self._target, self._copied, stop=self._stopping, on_blob=self._on_blob
        )
        if not self._stopping.is_set():
            self._blobs = msgspec.structs.replace(self._blobs, through=through, missing=missing)
            self._writer.note(self._blobs)

    def report(self) -> ArchiveReport:
        """Summary of this archiver's work."""
        writer = self._writer
        return ArchiveReport(
            run=writer.manifest.run,
            folder=str(writer.folder),
            first=writer.first,
            last=writer.last,
            events=writer.last - self._began,
            segments=len(writer.manifest.segments) + (writer.last >= writer.manifest.next),
            digest=writer.digest.hex(),
            pages=self._blobs.pages,
            blobs=self._copied.copied,
            blob_bytes=self._copied.bytes,
            missing=self._blobs.missing,
            damaged=tuple(self._copied.damaged),
        )


async def _gather(arrived: asyncio.Queue[list[Stored]]) -> list[Stored]:
    """Events for the next frame: enough to fill it, or what arrived within `LINGER_S` or before the end."""
    gathered: list[Stored] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while len(gathered) < FRAME_EVENTS:
                batch = await arrived.get()
                if not batch:
                    break
                gathered += batch
    return gathered
