"""Releases page snapshots that are not wanted any more (`storage.keep_page_episodes`); runs in the archiver's process.

Consumes everything; waits for the log, and `PAUSE_S` between rounds of at most `RELEASES` pages; produces `blob.released`
(then the file is deleted) and, every `storage.snapshot_events`, a snapshot of its fold for the next start.

A page is released only under these conditions: no kept episode shows it (`storage.blobs.wanted_pages`); the archive, if
there is one, has copied it; and it was last put so long ago that the event which names it is already folded. That age
holds by the events' time and by this machine's clock, even if the clock is set meanwhile.
A page that was released but still exists after a crash is released again; one that is already gone is skipped.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from hashlib import sha256
from typing import Protocol

import msgspec
import structlog

from hindcast.core.errors import CorruptEvent, DiskFull
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BlobReleased
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import BlobRef, Stored
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.blobs.wanted_pages import PageState, ReleasablePage, page_window, pages_kind
from hindcast.storage.snapshots import append_snapshot, newest_standing

PRODUCER = "pages"
"""A producer name separate from the archiver's: the archiver's last event says how far the archive is announced."""
RELEASES = 100
PAUSE_S = 1.0
REASON = "page of episodes that ended before the latest ones: storage.keep_page_episodes"
_log = structlog.get_logger(__name__)


class ArchivedPages(Protocol):
    """Blobs that an archive has copied."""

    @property
    def settled(self) -> int:
        """Position up to which it has copied the blobs that events name."""
        ...

    def has_copied(self, ref: BlobRef) -> bool:
        """Whether it holds this blob."""
        ...


class PageKeeper:
    """Releases the pages of one run."""

    def __init__(
        self,
        log: EventLog,
        blobs: BlobStore,
        publisher: Publisher,
        settings: Settings,
        *,
        first: int,
        unnamed_s: float,
        copies: Callable[[], ArchivedPages | None] | None = None,
    ) -> None:
        """`first`: position of the run's first own event. `unnamed_s`: longest time between storing a page and the event that
        names it. `copies`: the archive that pages are copied to first, None while it is not open; omitted: there is no archive.
        """
        self._log = log
        self._blobs = blobs
        self._publisher = publisher
        self._first = first
        self._unnamed_s = unnamed_s
        self._copies = copies
        self._window = page_window(settings)
        self._kind = pages_kind(settings, run=log.run)
        self._every = settings.storage.snapshot_events
        self._state = PageState(position=first - 1)
        self._latest = b""
        self._saved_at = first - 1
        self._ahead_s = time.time() - time.monotonic()
        """Difference of wall clock and monotonic clock at the start."""

    async def keep_on(self) -> None:
        """Run forever; cancel to stop.

        Raises:
            CorruptEvent, ForeignLog: the log cannot be followed.
            ExpectationFailed: another process releases this run's pages.
        """
        standing = await newest_standing(self._log, self._blobs, self._kind)
        if standing is not None:
            self._state = standing.state
            self._saved_at = standing.saved.position
        # Runs of earlier versions did not touch files that were put again: there only the whole log shows what is named.
        end = (await self._log.identity()).last
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._let_go(once_at=end))

    async def _follow(self) -> None:
        async with aclosing(self._log.tail(after=self._state.position)) as batches:
            async for batch in batches:
                for stored in batch:
                    self._take(stored)
                if self._state.position - self._saved_at >= self._every:
                    await self._save()
                await asyncio.sleep(0)  # let other tasks run during a long history

    def _take(self, stored: Stored) -> None:
        if stored.position != self._state.position + 1:
            raise CorruptEvent(
                f"events are missing: position {stored.position} follows {self._state.position} in the log of run "
                f"{self._log.run}. Run: hindcast audit {self._log.run}"
            )
        self._window.apply(self._state, stored.position, decode_envelope(stored))
        self._latest = stored.data

    async def _save(self) -> None:
        state, digest = self._state, sha256(self._latest).digest()
        content = self._kind.encode(state)
        position = self._saved_at = state.position
        try:
            blob = await asyncio.to_thread(self._blobs.put, content)
        except DiskFull as error:
            _log.warning("no snapshot: the next start folds more", reason=str(error))
            return
        await append_snapshot(
            self._log, self._publisher, self._kind, blob, position=position, position_digest=digest
        )

    async def _let_go(self, *, once_at: int) -> None:
        while True:
            if self._state.position >= once_at:
                await self._release_some()
            await asyncio.sleep(PAUSE_S)

    async def _release_some(self) -> None:
        """One round: append the releases, then delete the files."""
        due = self._state.due
        put_before = self._now_s() - self._unnamed_s
        round_ = await asyncio.to_thread(self._sort_due, list(due.items()), put_before)
        for digest, page in round_.gone.items():
            _forget(due, digest, page)
        going = {digest: page for digest, page in round_.going.items() if due.get(digest) == page}
        for digest, page in going.items():
            fact = BlobReleased(blob=page.ref(digest), reason=REASON, page=True)
            await self._publisher.publish(fact, entity=digest)
        if not going:
            return
        await self._publisher.commit()
        for digest, page in going.items():
            if await asyncio.to_thread(
                self._blobs.release_unless_renewed, page.ref(digest), since=put_before
            ):
                _forget(due, digest, page)
        _log.info("pages released", pages=len(going), waiting=len(due))

    def _now_s(self) -> float:
        """The earliest plausible time: by the latest event, by the wall clock, and by the wall clock at the start plus elapsed time.

        So a clock that jumps ahead makes no page older; a clock that is set back also dates new files.
        """
        return min(self._state.occurred_ns / 1e9, time.time(), time.monotonic() + self._ahead_s)

    def _sort_due(self, due: list[tuple[str, ReleasablePage]], put_before: float) -> "_Round":
        """Which of the due pages may be released. Blocking; changes nothing."""
        result = _Round()
        for digest, page in due:
            ref = page.ref(digest)
            if page.named_ns / 1e9 > put_before or not self._is_copied(ref, page.position):
                continue
            put_s = self._blobs.own_since(ref)
            if put_s is None:
                result.gone[digest] = page
            elif put_s <= put_before:
                result.going[digest] = page
                if len(result.going) == RELEASES:
                    break
        return result

    def _is_copied(self, ref: BlobRef, position: int) -> bool:
        if self._copies is None:
            return True
        archive = self._copies()
        return archive is not None and position <= archive.settled and archive.has_copied(ref)


class _Round(msgspec.Struct):
    going: dict[str, ReleasablePage] = msgspec.field(default_factory=dict)
    gone: dict[str, ReleasablePage] = msgspec.field(default_factory=dict)
    """Pages released before a crash, or never stored here: a fork's parent has them."""


def _forget(due: dict[str, ReleasablePage], digest: str, page: ReleasablePage) -> None:
    """Remove a page from `due`, unless an event has named it again meanwhile."""
    if due.get(digest) == page:
        del due[digest]
