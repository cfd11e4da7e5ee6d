"""`ContinuedLog`: the log of a running run whose beginning was moved to an archive, as one sequence.

`JoinedLog` joins two logs at a fixed position; here the position moves. Events in the stream are read from it, earlier ones
from the archive. A reader that falls behind the stream's beginning continues in the archive without noticing. Appends go to
the stream; expectations are checked against both.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from hindcast.core.errors import CorruptEvent, ExpectationFailed
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.errors import ArchiveMissing
from hindcast.events.envelope import Record, Stored
from hindcast.events.jetstream.consumers import BrokerConsumer
from hindcast.events.jetstream.stream_log import Fill, JetStreamLog
from hindcast.events.jetstream.stream_queue import JetStreamQueue
from hindcast.events.log.port import Expectation, LogIdentity
from hindcast.events.log.publisher import Publisher


class ContinuedLog:
    """An `EventLog` and `QueueSource`: a stream, and the archive of what is no longer in it."""

    def __init__(self, folder: Path, stream: JetStreamLog, *, first: int) -> None:
        """`first`: position of the run's own first event. The archive is opened once it is needed."""
        self._folder = folder
        self._stream = stream
        self.run, self.lineage = stream.run, stream.lineage
        self._first = first
        self._live = 0
        """First position in the stream when last checked; 0: not checked yet."""
        self._archive: ArchiveLog | None = None

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        """See `EventLog.append`. An expectation covers both parts: an event in the archive exists already."""
        if expect is None:
            return await self._stream.append(batch)
        live = await self._look()
        if live <= self._first or expect.last >= live:
            return await self._stream.append(batch, expect=expect)
        archived = await self._archived(self._first).last_under(expect.subject, until=live - 1)
        before = archived.position if archived else 0
        if archived is not None and [record.id for record in batch] == [archived.id]:
            return [before]  # a repetition by a writer that missed the acknowledgement
        if before != expect.last:
            raise ExpectationFailed(
                f"the last event under {expect.subject} up to position {live - 1} is at position {before}, not "
                f"{expect.last}: nothing was appended."
            )
        none_since = Expectation(subject=expect.subject, last=0)
        return await self._stream.append(batch, expect=none_since)

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        """See `EventLog.read`."""
        if after + 1 >= (self._live or await self._look()):
            events = await self._stream.read(after=after, limit=limit)
            if not events or events[0].position == after + 1:
                return events
            await self._look()
        events = await self._archived(after + 1).read(after=after, limit=limit)
        if not events:
            raise self._gap(after + 1, self._live)
        return events

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        """See `EventLog.tail`."""
        position = after
        while True:
            live = await self._look()
            while position + 1 < live:
                batch = await self._archived(position + 1).read(after=position, limit=live - 1 - position)
                if not batch:
                    raise self._gap(position + 1, live)
                position = batch[-1].position
                yield batch
            try:
                async with aclosing(self._stream.tail(after=position, headers=headers)) as batches:
                    async for batch in batches:
                        position = batch[-1].position
                        yield batch
            except CorruptEvent:
                if position + 1 >= await self._look():
                    raise

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        """See `EventLog.last_under`. Older events are searched in the archive, segment by segment."""
        event = await self._stream.last_under(subject, until=until)
        if event is not None or await self._look() <= self._first:
            return event
        moved = self._live - 1 if until is None else min(until, self._live - 1)
        return await self._archived(self._first).last_under(subject, until=moved)

    async def identity(self) -> LogIdentity:
        """See `EventLog.identity`."""
        stream = await self._stream.identity()
        self._live = stream.first or stream.last + 1
        if self._live <= self._first:
            return stream
        archived = await self._archived(self._first).identity()
        if archived.last < self._live - 1:
            raise self._gap(archived.last + 1, self._live)
        return LogIdentity(
            run=self.run, first_digest=archived.first_digest, first=archived.first, last=stream.last
        )

    async def open_queue(
        self, name: str, *, family: str, dead_letters: Publisher | None = None
    ) -> JetStreamQueue:
        """See `events.log.work_queue.QueueSource`: unfinished work stays in the stream."""
        return await self._stream.open_queue(name, family=family, dead_letters=dead_letters)

    async def fill(self) -> Fill:
        """Return how full the stream is; archived events do not count."""
        return await self._stream.fill()

    async def served(self) -> list[BrokerConsumer]:
        """List the stream's readers, as the broker knows them."""
        return await self._stream.served()

    async def _look(self) -> int:
        """Find the first position that is in the stream now."""
        stream = await self._stream.identity()
        self._live = stream.first or stream.last + 1
        return self._live

    def _archived(self, position: int) -> ArchiveLog:
        """Open the archive, for an event that is no longer in the stream."""
        if self._archive is None:
            try:
                self._archive = ArchiveLog(self._folder)
            except ArchiveMissing as error:
                raise ArchiveMissing(
                    f"position {position} of run {self.run} was moved to the archive in {self._folder}, but there is none. "
                    "Restore that folder, or set storage.archive in the run's settings.toml to where it is now."
                ) from error
        return self._archive

    def _gap(self, first: int, live: int) -> CorruptEvent:
        return CorruptEvent(
            f"positions {first} to {live - 1} of run {self.run} are neither in the broker nor in the archive in "
            f"{self._folder}: it is another archive, or lost its end. Restore that folder."
        )
