"""Moves a log's beginning from the broker to its archive, while the run continues.

Consumes the segments that the archiver has closed, and the positions of all consumers; waits `MOVE_S` between rounds;
produces one `segment.archived` for each segment that was read back intact, then purges old events from the broker.

An event is purged only under these conditions: it is in a closed segment that was just read back byte by byte; the stream's
event at the segment's end equals the archive's; `segment.archived` of it is in the log; it is not among the latest
`storage.keep_live_events`, nor younger than `keep_s`; no work queue and no follower still needs it; and no episode requested
in it is open.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import structlog

from hindcast.core.errors import ForeignLog
from hindcast.core.structs import msgpack_decoder
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.check import check_segment
from hindcast.events.archive.errors import ArchiveDamaged
from hindcast.events.archive.manifest import Segment, load, segment_path
from hindcast.events.catalogue import SegmentArchived
from hindcast.events.codec import decode, decode_envelope
from hindcast.events.envelope import Envelope
from hindcast.events.jetstream.accounts import FOLLOWERS
from hindcast.events.jetstream.consumers import BrokerConsumer
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.publisher import Publisher

MOVE_S = 15.0
"""Seconds between two rounds."""
REQUESTED = "episode.requested"
TERMINAL = ("episode.ended", "episode.abandoned", "episode.cancelled")
_log = structlog.get_logger(__name__)


class _Episode(msgspec.Struct, frozen=True):
    episode: str


_decoder = msgpack_decoder(_Episode)


class OpenEpisodes:
    """Open episodes and the positions of their requests. A pure fold of the events still in the stream.

    Final events are created only if absent: while an episode is open, nothing about it may leave the stream.
    """

    def __init__(self) -> None:
        self._requested: dict[str, int] = {}

    def take(self, position: int, envelope: Envelope) -> None:
        """Take in the next event: a request opens an episode, a final event closes it."""
        if envelope.type == REQUESTED:
            self._requested.setdefault(_decoder.decode(envelope.payload).episode, position)
        elif envelope.type in TERMINAL:
            self._requested.pop(_decoder.decode(envelope.payload).episode, None)

    @property
    def oldest(self) -> int | None:
        """Position of the oldest open request; None: none is open."""
        return min(list(self._requested.values()), default=None)  # a copy: another thread adds events


def floor_of(served: Iterable[BrokerConsumer]) -> int | None:
    """The first position that a consumer of the stream still needs; None: no consumer needs any."""
    needed = []
    for consumer in served:
        if consumer.queue and consumer.oldest is not None:
            needed.append(consumer.oldest)
        elif consumer.role in FOLLOWERS:
            needed.append(consumer.handed + 1)
    return min(needed, default=None)


class _Ages:
    """Ages of events, unaffected by changes of the clock.

    For events present at the first look, the age is the wall clock at that look minus their own time, plus the time since. For
    later events, it is the time since this process saw them.
    """

    def __init__(self, *, last: int, wall_s: float, now_s: float) -> None:
        """State at the first look. `last`: the log's last position. `wall_s`: wall clock. `now_s`: monotonic clock."""
        self._first_end = last
        self._ahead_s = wall_s - now_s
        self._ends: deque[tuple[float, int]] = deque([(now_s, last)])
        """Times and last positions at which the log had grown, oldest first."""

    def note_end(self, *, last: int, now_s: float) -> None:
        """Note that the log now ends at `last`."""
        if last > self._ends[-1][1]:
            self._ends.append((now_s, last))

    def is_old(self, position: int, *, occurred_s: float, now_s: float, keep_s: float) -> bool:
        """Whether an event is at least `keep_s` old."""
        if position <= self._first_end:
            return now_s + self._ahead_s - occurred_s >= keep_s
        while len(self._ends) > 1 and self._ends[1][0] <= now_s - keep_s:
            self._ends.popleft()
        seen_s, last = self._ends[0]
        return position <= last and seen_s <= now_s - keep_s


class Mover:
    """Announces archived segments, and purges them from the broker in time."""

    def __init__(
        self,
        log: EventLog,
        stream: JetStreamLog,
        folder: Path,
        publisher: Publisher,
        open_episodes: OpenEpisodes,
        *,
        keep_events: int,
        keep_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`log`: the run's sequence across archive and stream. `keep_s`: age up to which events stay. `clock`: the wall clock, read
        once.
        """
        self._run_log = log
        self._stream = stream
        self._folder = folder
        self._publisher = publisher
        self._open = open_episodes
        self._keep_events = keep_events
        self._keep_s = keep_s
        self._clock = clock
        self._ages: _Ages | None = None
        """None before the first round."""
        self._announced: int | None = None
        """Position up to which the log has segment.archived; None before the first round."""

    async def keep_on(self) -> None:
        """Run forever; ends with an error if the archive is damaged or the log is another one."""
        while True:
            await self.announce()
            await self.purge()
            await asyncio.sleep(MOVE_S)

    async def announce(self) -> int:
        """Record the segments closed since the last round; returns their number.

        Raises:
            ArchiveDamaged: one of them does not read back.
            ExpectationFailed: another archiver announces segments of this run.
        """
        subject = f"run.{self._stream.run}.storage.archiver.>"
        last = await self._run_log.last_under(subject)
        recorded = decode(last) if last is not None else None
        announced_to = recorded.fact.last if recorded and isinstance(recorded.fact, SegmentArchived) else 0
        expected = last.position if last is not None else 0
        announced = 0
        manifest = await asyncio.to_thread(load, self._folder)
        for index, segment in enumerate(manifest.segments):
            if segment.last > announced_to:
                await self._require_whole(index)
                fact = SegmentArchived(
                    first=segment.first,
                    last=segment.last,
                    sha256=segment.sha256,
                    location=str(segment_path(self._folder, segment.first)),
                )
                expect = Expectation(subject=subject, last=expected)
                expected = await self._publisher.decide(fact, entity=self._stream.run, expect=expect)
                announced += 1
        self._announced = manifest.segments[-1].last if manifest.segments else 0
        return announced

    async def purge(self) -> int:
        """Purge what may leave the broker; returns the last purged position, 0 for none.

        Raises:
            ArchiveDamaged, ForeignLog: archive and stream differ. Nothing was purged.
        """
        identity = await self._stream.identity()
        now_s = asyncio.get_running_loop().time()
        ages = self._ages = self._ages or _Ages(last=identity.last, wall_s=self._clock(), now_s=now_s)
        ages.note_end(last=identity.last, now_s=now_s)
        limit = min(self._announced or 0, identity.last - self._keep_events)
        needed = [floor_of(await self._stream.served()), self._open.oldest]
        limit = min([limit, *(position - 1 for position in needed if position is not None)])
        purged_to = 0
        manifest = await asyncio.to_thread(load, self._folder)
        for index, segment in enumerate(manifest.segments):
            if identity.first <= segment.last <= limit:
                occurred_s = await self._recorded_s(segment)
                if not ages.is_old(segment.last, occurred_s=occurred_s, now_s=now_s, keep_s=self._keep_s):
                    break
                await self._require_whole(index)
                purged_to = segment.last
        if purged_to:
            await self._stream.purge(until=purged_to)
            _log.info("moved to the archive", until=purged_to, folder=str(self._folder))
        return purged_to

    async def _require_whole(self, index: int) -> None:
        defect = await asyncio.to_thread(check_segment, self._folder, index)
        if defect is not None:
            raise ArchiveDamaged(
                f"{self._folder / defect.where} does not read back as it was written, position {defect.position}: "
                f"{defect.what} Nothing of it was removed from the broker."
            )

    async def _recorded_s(self, segment: Segment) -> float:
        """When a segment's last event was recorded, by its own time; raises ForeignLog if the stream holds another event there."""
        archived = await ArchiveLog(self._folder).read(after=segment.last - 1, limit=1)
        live = await self._stream.read(after=segment.last - 1, limit=1)
        if not live or not archived or (live[0].id, live[0].data) != (archived[0].id, archived[0].data):
            raise ForeignLog(
                f"position {segment.last} of run {self._stream.run} is another event in the broker than in the archive in "
                f"{self._folder}. Nothing was removed from the broker. Run: hindcast archive check {self._folder}"
            )
        return decode_envelope(live[0]).occurred_ns / 1e9
