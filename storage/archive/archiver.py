"""The archiver: a consumer of the log whose effect is an archive folder, and whose position is what is durable there.

Consumes every event behind the archive's last one, checked; waits for the log (its adapter's bound) and at most
`LINGER_S` for more events to fill a frame; produces frames, then the blobs they name. Whenever it is killed, the next one
goes on behind the last whole frame; it first makes sure that it is the same log. Blobs are copied when the archiver has
caught up: weights and checkpoints that were let go of meanwhile are never copied.
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
"""How long single events of a quiet run wait for others before they are written as a frame."""
SETTLE_EVENTS = 20_000
"""Events after which blobs are copied although there is more of the log: what a crash has to look through again."""
SETTLE_S = 30.0
"""Time between two copyings of blobs while following: most checkpoints are let go of before."""
QUEUED_BATCHES = 8
"""Batches of the log that wait for the disk."""


class ArchiveReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an archiver did, and what the archive holds now."""

    run: str
    folder: str
    first: int
    last: int
    events: int
    """Added."""
    segments: int
    digest: str
    """Rolling digest of the log up to `last`."""
    pages: bool
    """Whether snapshots of pages are kept."""
    blobs: int
    """Added."""
    blob_bytes: int
    missing: tuple[NamedBlob, ...]
    """Blobs that nobody let go of, but that could not be found or are damaged."""
    damaged: tuple[str, ...]
    """Of those, why the damaged ones were not copied."""


def archive_blobs(folder: Path) -> BlobStore:
    """The blobs of an archive."""
    return BlobStore(folder / BLOBS)


class Archiver:
    """One archive being written from one log."""

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
        """`on_event` hears of every position that has become durable, `on_blob` of how many blobs are left to
        be looked at."""
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
            noted = Blobs()  # snapshots are wanted from now on: those of the beginning too
        self._blobs = msgspec.structs.replace(noted, pages=pages)
        self._needs = BlobNeeds(pages=pages, wanted=noted.missing)
        self._stopping = Event()

    @property
    def settled(self) -> int:
        """Position up to which the blobs that events name were looked for, and copied."""
        return self._blobs.through

    def has_copied(self, ref: BlobRef) -> bool:
        """Whether the archive holds a blob."""
        return self._target.has(ref)

    async def run(self, *, follow: bool) -> None:
        """Archive up to where the log ends now, or for ever; cancel it to stop. What was taken in stays, and is noted.

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
                    raise group.exceptions[0] from None  # each of them ends both tasks: there is no second
            await asyncio.to_thread(self._settle)
        finally:
            self._stopping.set()
            await asyncio.to_thread(self._writer.note, self._blobs)

    async def _take_all(self, end: int | None) -> None:
        """The log up to `end`, as frames; blobs when there is much to look through, or after a while of following."""
        arrived: asyncio.Queue[list[Stored]] = asyncio.Queue(QUEUED_BATCHES)
        async with asyncio.TaskGroup() as tasks:
            fetching = tasks.create_task(self._fetch(arrived, end))
            settled_s = monotonic()
            while not (fetching.done() and arrived.empty()):
                if batch := await _gather(arrived):
                    await asyncio.to_thread(self._take, batch)
                behind = self._writer.last - self._blobs.through
                due = end is None and monotonic() - settled_s >= SETTLE_S
                if behind >= SETTLE_EVENTS or (behind and due):
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
        """That this is the log that was archived so far, and that it has what comes next."""
        writer, identity = self._writer, await self._log.identity()
        if identity.last and identity.first > writer.last + 1:
            raise ForeignLog(
                f"the log of run {self._log.run} begins at position {identity.first}, but the archive in {writer.folder} ends "
                f"at {writer.last}: what stands between is in neither. Archive the run into another folder, or continue the "
                "archive that its beginning was moved to."
            )
        if writer.last >= writer.first and identity.first <= writer.last:
            bookmark = Bookmark(position=writer.last, digest=writer.last_digest, first_digest=b"")
            await check_log(self._log, after=writer.last, bookmark=bookmark)
        return identity

    def _take(self, batch: list[Stored]) -> None:
        """Events that are whole, made durable; raises CorruptEvent at the first that is not, those before it taken."""
        whole: list[Envelope] = []
        try:
            whole.extend(map(self._checked, batch))
        finally:
            self._writer.append(batch[: len(whole)])
            for stored, envelope in zip(batch, whole, strict=False):
                self._needs.take(stored.position, envelope)
                self._watch(stored.position, envelope)
            self._on_event(self._writer.last)

    def _checked(self, stored: Stored) -> Envelope:
        envelope = decode_envelope(stored)
        if stored.subject.split(".")[1] != envelope.run:
            raise CorruptEvent(
                f"position {stored.position} is damaged: it stands under {stored.subject}, but was recorded by run "
                f"{envelope.run}. Run: hindcast audit {self._log.run}"
            )
        self._chains.link(stored.position, envelope, sha256(stored.data).digest())
        return envelope

    def _recall(self) -> None:
        """What the archive's events name whose blobs were not looked for yet."""
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
        """What came of it."""
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
    """What has arrived: enough for a frame, or what came within `LINGER_S` or before the end."""
    gathered: list[Stored] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while len(gathered) < FRAME_EVENTS:
                batch = await arrived.get()
                if not batch:
                    break
                gathered += batch
    return gathered
