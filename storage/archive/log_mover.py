"""Moving a log's beginning from the broker to its archive, while the run goes on.

Consumes the segments that the archiver has closed and how far everybody else has come; waits `MOVE_S` between looks;
produces one `segment.archived` for each segment that was read back whole, then lets the broker forget what is old enough.

Nothing leaves the broker unless all of this holds: it lies in closed segments that were read through just before, byte
by byte; the stream's event at their end is the archive's; `segment.archived` of them stands in the log; the latest
`storage.keep_live_events` stay, and so does whatever is younger than `keep_s`; no work queue has anything of it to do, no
role that follows is still to be given it, and no episode that was requested in it is open.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import structlog

from hindcast.core.errors import ForeignLog
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
"""Between two looks at what may be moved."""
REQUESTED = "episode.requested"
TERMINAL = ("episode.ended", "episode.abandoned", "episode.cancelled")
_log = structlog.get_logger(__name__)


class _Episode(msgspec.Struct, frozen=True):
    episode: str


_decoder = msgspec.msgpack.Decoder(_Episode)


class OpenEpisodes:
    """Which episodes have not ended, and where they were requested. A pure fold of the events still in the stream.

    Their ends are created if absent: while one is open nothing about it may leave the stream.
    """

    def __init__(self) -> None:
        self._requested: dict[str, int] = {}

    def take(self, position: int, envelope: Envelope) -> None:
        """The next event."""
        if envelope.type == REQUESTED:
            self._requested.setdefault(_decoder.decode(envelope.payload).episode, position)
        elif envelope.type in TERMINAL:
            self._requested.pop(_decoder.decode(envelope.payload).episode, None)

    @property
    def oldest(self) -> int | None:
        """Position of the oldest request that is open; None: there is none."""
        return min(list(self._requested.values()), default=None)  # a copy: events are taken in by a thread


def floor_of(served: Iterable[BrokerConsumer]) -> int | None:
    """The first position that somebody who reads the stream still needs; None: nobody does."""
    needed = []
    for one in served:
        if one.queue and one.oldest is not None:
            needed.append(one.oldest)
        elif one.role in FOLLOWERS:
            needed.append(one.handed + 1)
    return min(needed, default=None)


class _Ages:
    """How old events are, whatever a clock is set to meanwhile.

    What was there at the first look is as old as its own time says, measured from the wall clock at that look. What came
    later is as old as this process has known of it.
    """

    def __init__(self, *, last: int, wall_s: float, now_s: float) -> None:
        """At the first look: the log's last position, and two clocks, of which the second never jumps."""
        self._begun = last
        self._ahead_s = wall_s - now_s
        self._looks: deque[tuple[float, int]] = deque([(now_s, last)])
        """When the log was seen to reach up to where, oldest first."""

    def look(self, *, last: int, now_s: float) -> None:
        """The log reaches up to a position now."""
        if last > self._looks[-1][1]:
            self._looks.append((now_s, last))

    def is_old(self, position: int, *, occurred_s: float, now_s: float, keep_s: float) -> bool:
        """Whether an event has been there for `keep_s`."""
        if position <= self._begun:
            return now_s + self._ahead_s - occurred_s >= keep_s
        while len(self._looks) > 1 and self._looks[1][0] <= now_s - keep_s:
            self._looks.popleft()
        seen_s, last = self._looks[0]
        return position <= last and seen_s <= now_s - keep_s


class Mover:
    """Announces what stands in the archive, and lets the broker forget it in time."""

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
        """`log`: the run's own sequence across archive and stream; `keep_s`: age up to which events stay. `clock`: the wall
        clock, which is read once."""
        self._run_log = log
        self._stream = stream
        self._folder = folder
        self._publisher = publisher
        self._open = open_episodes
        self._keep_events = keep_events
        self._keep_s = keep_s
        self._clock = clock
        self._ages: _Ages | None = None
        """None: nothing was looked at yet."""
        self._announced: int | None = None
        """Position up to which segment.archived stands in the log; None: not looked yet."""

    async def keep_on(self) -> None:
        """For ever; an archive that is damaged or a log that is another one ends it."""
        while True:
            await self.announce()
            await self.purge()
            await asyncio.sleep(MOVE_S)

    async def announce(self) -> int:
        """Record the segments closed since; returns how many.

        Raises:
            ArchiveDamaged: one of them does not read back.
            ExpectationFailed: another archiver announces segments of this run.

        """
        subject = f"run.{self._stream.run}.storage.archiver.>"
        last = await self._run_log.last_under(subject)
        recorded = decode(last) if last is not None else None
        before = recorded.fact.last if recorded and isinstance(recorded.fact, SegmentArchived) else 0
        expected = last.position if last is not None else 0
        told = 0
        manifest = await asyncio.to_thread(load, self._folder)
        for index, segment in enumerate(manifest.segments):
            if segment.last > before:
                await self._require_whole(index)
                fact = SegmentArchived(
                    first=segment.first,
                    last=segment.last,
                    sha256=segment.sha256,
                    location=str(segment_path(self._folder, segment.first)),
                )
                expect = Expectation(subject=subject, last=expected)
                expected = await self._publisher.decide(fact, entity=self._stream.run, expect=expect)
                told += 1
        self._announced = manifest.segments[-1].last if manifest.segments else 0
        return told

    async def purge(self) -> int:
        """Let the broker forget what it may; returns the last position it forgot, 0 for none.

        Raises:
            ArchiveDamaged, ForeignLog: the archive does not hold what the stream does. Nothing was forgotten.

        """
        identity = await self._stream.identity()
        now_s = asyncio.get_running_loop().time()
        ages = self._ages = self._ages or _Ages(last=identity.last, wall_s=self._clock(), now_s=now_s)
        ages.look(last=identity.last, now_s=now_s)
        limit = min(self._announced or 0, identity.last - self._keep_events)
        needed = [floor_of(await self._stream.served()), self._open.oldest]
        limit = min([limit, *(position - 1 for position in needed if position is not None)])
        until = 0
        manifest = await asyncio.to_thread(load, self._folder)
        for index, segment in enumerate(manifest.segments):
            if identity.first <= segment.last <= limit:
                occurred_s = await self._recorded_s(segment)
                if not ages.is_old(segment.last, occurred_s=occurred_s, now_s=now_s, keep_s=self._keep_s):
                    break
                await self._require_whole(index)
                until = segment.last
        if until:
            await self._stream.purge(until=until)
            _log.info("moved to the archive", until=until, folder=str(self._folder))
        return until

    async def _require_whole(self, index: int) -> None:
        defect = await asyncio.to_thread(check_segment, self._folder, index)
        if defect is not None:
            raise ArchiveDamaged(
                f"{self._folder / defect.where} does not read back as it was written, position {defect.position}: "
                f"{defect.what} Nothing of it was removed from the broker."
            )

    async def _recorded_s(self, segment: Segment) -> float:
        """When a segment's last event was recorded, by its own word; asserts that the stream holds the same one there."""
        archived = await ArchiveLog(self._folder).read(after=segment.last - 1, limit=1)
        live = await self._stream.read(after=segment.last - 1, limit=1)
        if not live or not archived or (live[0].id, live[0].data) != (archived[0].id, archived[0].data):
            raise ForeignLog(
                f"position {segment.last} of run {self._stream.run} is another event in the broker than in the archive in "
                f"{self._folder}. Nothing was removed from the broker. Run: hindcast archive check {self._folder}"
            )
        return decode_envelope(live[0]).occurred_ns / 1e9
