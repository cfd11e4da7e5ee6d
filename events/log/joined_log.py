"""`JoinedLog`: two logs as one, an older part up to a position and a newer part after it.

A fork's log is its parent's up to the fork, by reference, and then its own stream. Only the newer part grows. A reader does
not notice the transition, except by `lineage`, which names the run of the older events.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from hindcast.core.errors import CorruptEvent, ExpectationFailed
from hindcast.events.archive.continued_log import ContinuedLog
from hindcast.events.envelope import Record, Stored
from hindcast.events.jetstream.consumers import BrokerConsumer
from hindcast.events.jetstream.stream_log import Fill, JetStreamLog
from hindcast.events.log.port import Ancestor, EventLog, Expectation, LogIdentity
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import QueueSource, WorkQueue
from hindcast.events.subjects import of_run


class GrowingLog(EventLog, QueueSource, Protocol):
    """A log that can be appended to, with work queues."""


class JoinedLog:
    """An `EventLog` and `QueueSource`: `older` up to position `at`, then `newer`, which begins at `at + 1`."""

    def __init__(self, older: EventLog, newer: GrowingLog, *, at: int) -> None:
        """Reads neither log."""
        self._older = older
        self._newer = newer
        self.run = newer.run
        self._at = at

    @property
    def lineage(self) -> tuple[Ancestor, ...]:
        """See `EventLog.lineage`."""
        before = [ancestor for ancestor in self._older.lineage if ancestor.until < self._at]
        owner = next(
            (ancestor.run for ancestor in self._older.lineage if ancestor.until >= self._at), self._older.run
        )
        if owner != self._newer.run:
            before.append(Ancestor(run=owner, until=self._at))
        return tuple(before)

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        """See `EventLog.append`. An expectation covers both parts: an event in the older part exists already."""
        if expect is None or expect.last > self._at:
            return await self._newer.append(batch, expect=expect)
        last = await self._last_in_older(expect.subject, until=self._at)
        before = last.position if last else 0
        if before != expect.last:
            raise ExpectationFailed(
                f"the last event under {expect.subject} up to position {self._at} is at position {before}, not "
                f"{expect.last}: nothing was appended."
            )
        none_since = Expectation(subject=expect.subject, last=0)
        return await self._newer.append(batch, expect=none_since)

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        """See `EventLog.read`."""
        if after >= self._at:
            return await self._newer.read(after=after, limit=limit)
        events = await self._older.read(after=after, limit=min(limit, self._at - after))
        older_events = [stored for stored in events if stored.position <= self._at]
        # the older part has no more events up to `at`
        return older_events or await self._newer.read(after=self._at, limit=limit)

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        """See `EventLog.tail`."""
        if after < self._at:
            async with aclosing(self._older.tail(after=after, headers=headers)) as batches:
                async for batch in batches:
                    events = [stored for stored in batch if stored.position <= self._at]
                    if events:
                        yield events
                    if batch[-1].position >= self._at:
                        break
        async with aclosing(self._newer.tail(after=max(after, self._at), headers=headers)) as batches:
            async for batch in batches:
                yield batch

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        """See `EventLog.last_under`."""
        if until is None or until > self._at:
            event = await self._newer.last_under(subject, until=until)
            if event is not None:
                return event
        return await self._last_in_older(subject, until=self._at if until is None else min(until, self._at))

    async def _last_in_older(self, subject: str, *, until: int) -> Stored | None:
        """Find the last event in the older part, under its own run's name; events after `until` may have the same subject."""
        return await self._older.last_under(of_run(subject, self._older.run), until=until)

    async def identity(self) -> LogIdentity:
        """See `EventLog.identity`.

        Raises:
            CorruptEvent: the older part ends before the newer one begins.

        """
        older, newer = await self._older.identity(), await self._newer.identity()
        if older.last < self._at:
            raise CorruptEvent(
                f"the log of run {self.run} continues after position {self._at} of run {self._older.run}, which ends at "
                f"{older.last}: it lost events or is another log. Restore it."
            )
        return LogIdentity(
            run=self.run,
            first_digest=older.first_digest,
            first=older.first,
            last=max(self._at, newer.last),
        )

    async def open_queue(self, name: str, *, family: str, dead_letters: Publisher | None = None) -> WorkQueue:
        """See `events.log.work_queue.QueueSource`: only the newer part has work; a fork ends the older part's open episodes."""
        return await self._newer.open_queue(name, family=family, dead_letters=dead_letters)


OwnLog = JetStreamLog | ContinuedLog
"""Log of a run's own events: a stream, whose beginning may have been moved to an archive."""


class JoinedStream(JoinedLog):
    """A joined log whose newer part is a stream, with the stream's further operations."""

    def __init__(self, older: EventLog, newer: OwnLog, *, at: int) -> None:
        super().__init__(older, newer, at=at)
        self._stream = newer

    async def fill(self) -> Fill:
        """Return how full the stream is, without the older part."""
        return await self._stream.fill()

    async def served(self) -> list[BrokerConsumer]:
        """List the stream's readers, as the broker knows them."""
        return await self._stream.served()


RunLog = OwnLog | JoinedStream
"""Log of a run."""
