"""What a simulated process reaches others through: the log, the queues, the blobs. Slow, lossy, cut when it is killed."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from random import Random

import msgspec

from fakes.virtual_time import Lane, VirtualLoop
from hindcast.core.errors import BlobMissing, BrokerUnreachable, CorruptEvent
from hindcast.core.ids import digest_hex
from hindcast.events.envelope import BlobRef, Record, Stored
from hindcast.events.jetstream.consumers import BrokerConsumer
from hindcast.events.log.append_once import Outcome, OutcomeUnknown, append_once
from hindcast.events.log.memory import Faults, MemoryLog, _Lease
from hindcast.events.log.port import Expectation, LogIdentity
from hindcast.events.log.work_queue import Delivery, Handle, WorkQueue
from hindcast.events.subjects import matches

REPLY_S = 1.0
"""After this long without a reply the outcome of an append is unknown."""
PATIENCE_S = 60.0
"""How long one append, or one look at the log, is tried."""


class Broker(MemoryLog):
    """The log's server. A process that stands still holds up nobody: whoever waits is woken without a lock."""

    def __init__(self, run: str, *, faults: Faults, clock: Callable[[], float], first: int = 1) -> None:
        super().__init__(run, faults=faults, clock=clock, first=first)
        self.lane = Lane("broker")
        self.lost_words = faults.lost_reply
        """Share of a queue's deliveries and acknowledgements that are lost."""
        self._waiting: dict[asyncio.Future[None], None] = {}
        self.live = first
        """First position that was not moved to the archive; `events` holds all, for tests to look at."""

    def purge(self, *, until: int) -> None:
        """Forget the beginning, as far as anybody can tell."""
        self.live = max(self.live, until + 1)

    def served(self) -> list[BrokerConsumer]:
        """The work queues; tails fall behind, and go on in the archive."""
        found = []
        for name, state in self._queues.items():
            due = [stored.position for stored in self.events if matches(self._subjects[name], stored.subject)]
            open_ones = [at for at in due if at > state.scanned or at in state.leases]
            oldest = min(open_ones, default=None)
            found.append(
                BrokerConsumer(
                    name=name, queue=True, handed=state.scanned, waiting=0, in_work=0, oldest=oldest
                )
            )
        return found

    def heal(self) -> None:
        """From now on nothing is lost."""
        self._faults, self.lost_words = Faults(seed=0), 0.0
        self.reachable, self.max_bytes = True, None

    async def attempt(self, batch: Sequence[Record], expect: Expectation | None) -> Outcome:
        before = len(self.events)
        outcome = await super().attempt(batch, expect)
        if len(self.events) > before:
            waiting, self._waiting = self._waiting, {}
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        return outcome

    async def wait_for_growth(self, position: int, *, timeout_s: float | None = None) -> None:
        if self._last > position:
            return
        try:
            async with asyncio.timeout(timeout_s):
                while self._last <= position:
                    future = asyncio.get_running_loop().create_future()
                    self._waiting[future] = None
                    await future
        except TimeoutError:
            return

    def _position_under(self, subject: str) -> int:
        if not subject.endswith(".>"):
            last = self._last_under.get(subject, 0)
        else:
            prefix = subject[:-1]
            last = max((at for name, at in self._last_under.items() if name.startswith(prefix)), default=0)
        return last if last >= self.live else 0

    def forget_acknowledgements(self, random: Random) -> None:
        """A queue's position goes backwards, as when the broker is killed: acknowledged work is handed out again."""
        for name, state in self._queues.items():
            subject = self._subjects[name]
            seen = [
                stored.position for stored in self.events[: state.scanned] if matches(subject, stored.subject)
            ]
            for position in seen[-random.randint(1, 8) :]:
                state.leases.setdefault(position, _Lease(0, self._clock()))

    @property
    def _subjects(self) -> dict[str, str]:
        return {
            "actors": f"run.{self.run}.request.>",
            "judges": f"run.{self.run}.episode_end.>",
        }

    def lose_the_end(self, count: int) -> None:
        """Drop the last events and let positions be given out again, as a broker did after one flipped bit."""
        for stored in self.events[-count:]:
            self._by_id.pop(stored.id, None)
        del self.events[-count:]
        self._last_under = {stored.subject: stored.position for stored in self.events}
        for state in self._queues.values():
            state.scanned = min(state.scanned, len(self.events))
            state.leases = {at: lease for at, lease in state.leases.items() if at <= len(self.events)}


class Connection:
    """An `EventLog` and `QueueSource` as one process reaches it. What is under way when it is killed may still arrive."""

    def __init__(self, broker: Broker, random: Random, *, slowness: float) -> None:
        """`slowness`: share of what is said that takes long."""
        self._broker = broker
        self._random = random
        self._slowness = slowness
        self.run = broker.run
        self.lineage = broker.lineage
        self.cut = False
        """Nothing passes any more."""
        self.at_kill: list[Callable[[], None]] = []
        """What the system closes for a process that is killed."""

    def _check(self) -> None:
        if self.cut:
            raise BrokerUnreachable("this process was killed")

    def _delay_s(self) -> float:
        draw = self._random.random()
        if draw >= self._slowness:
            return 0.0
        return self._random.choice((0.001, 0.01, 0.3))

    def lost(self) -> bool:
        """Whether a word to or from a queue gets lost."""
        return self._random.random() < self._broker.lost_words

    async def _travel(self) -> None:
        self._check()
        tries = 0
        if delay_s := self._delay_s():
            await asyncio.sleep(delay_s)
        while not self._broker.reachable:
            tries += 1
            if tries > PATIENCE_S:
                raise BrokerUnreachable("the broker does not answer")
            await asyncio.sleep(REPLY_S)
        self._check()

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE_S
        positions = await append_once(
            self,
            batch,
            expect,
            patience=lambda: clock() < deadline,
            pause=lambda tries: asyncio.sleep(min(1.0, 0.05 * tries)),
        )
        self._check()
        return positions

    async def attempt(self, batch: Sequence[Record], expect: Expectation | None) -> Outcome:
        self._check()
        there_s, back_s = self._delay_s(), self._delay_s()
        if not there_s and not back_s:
            outcome = await self._broker.attempt(batch, expect)
            if isinstance(outcome, OutcomeUnknown):
                await asyncio.sleep(REPLY_S)
            return outcome
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        reply: asyncio.Future[Outcome] = loop.create_future()

        async def carry() -> None:
            await asyncio.sleep(there_s)
            outcome = await self._broker.attempt(batch, expect)
            await asyncio.sleep(back_s)
            if not isinstance(outcome, OutcomeUnknown) and not reply.done():
                reply.set_result(outcome)

        loop.start(self._broker.lane, carry())
        try:
            async with asyncio.timeout(REPLY_S):
                return await reply
        except TimeoutError:
            return OutcomeUnknown("no reply")

    async def find(self, batch: Sequence[Record]) -> list[int | None] | None:
        self._check()
        return await self._broker.find(batch)

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        await self._travel()
        return await self._broker.read(after=max(after, self._broker.live - 1), limit=limit)

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        async with aclosing(self._broker.tail(after=after)) as batches:
            async for batch in batches:
                await self._travel()
                if batch[0].position < self._broker.live:
                    raise CorruptEvent(f"position {batch[0].position} is not in the stream")
                yield batch

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        await self._travel()
        found = await self._broker.last_under(subject, until=until)
        return found if found is not None and found.position >= self._broker.live else None

    async def identity(self) -> LogIdentity:
        await self._travel()
        identity = await self._broker.identity()
        return msgspec.structs.replace(
            identity, first=max(identity.first, self._broker.live) if identity.first else 0
        )

    @property
    def began(self) -> int:
        """As `JetStreamLog.began`."""
        return self._broker.live

    async def purge(self, *, until: int) -> None:
        await self._travel()
        self._broker.purge(until=until)

    async def served(self) -> list[BrokerConsumer]:
        await self._travel()
        return self._broker.served()

    async def open_queue(self, name: str, *, family: str, dead_letters: object = None) -> WorkQueue:
        await self._travel()
        queue = await self._broker.open_queue(name, family=family, dead_letters=dead_letters)  # type: ignore[arg-type]
        return _Queue(self, queue)


class _Queue:
    """A `WorkQueue` at the end of a connection: deliveries and acknowledgements get lost."""

    def __init__(self, connection: Connection, queue: WorkQueue) -> None:
        self._connection = connection
        self._queue = queue

    async def fetch(self, limit: int, *, wait_s: float) -> list[Delivery]:
        await self._connection._travel()
        deliveries = await self._queue.fetch(limit, wait_s=wait_s)
        if self._connection.lost():
            return []
        return [
            Delivery(each.recorded, each.tries, _Handle(self._connection, each._handle))
            for each in deliveries
        ]


class _Handle:
    def __init__(self, connection: Connection, handle: Handle) -> None:
        self._connection = connection
        self._handle = handle

    async def ack(self) -> None:
        await self._connection._travel()
        if not self._connection.lost():
            await self._handle.ack()

    async def in_progress(self) -> None:
        await self._connection._travel()
        await self._handle.in_progress()

    async def retry(self, delay_s: float) -> None:
        await self._connection._travel()
        await self._handle.retry(delay_s)


class MemoryBlobs:
    """Blobs in memory, under the contract of `storage.blobs.BlobStore`; a file exists only once its path is asked for."""

    def __init__(self, folder: Path) -> None:
        self.contents: dict[str, bytes] = {}
        self.ever: dict[str, bytes] = {}
        """Also what was released."""
        self._put_s: dict[str, float] = {}
        self._folder = folder

    def put(self, content: bytes) -> BlobRef:
        ref = BlobRef(digest_hex(content), len(content))
        self.contents[ref.sha256] = self.ever[ref.sha256] = content
        self._put_s[ref.sha256] = asyncio.get_running_loop().time()
        return ref

    def own_since(self, ref: BlobRef) -> float | None:
        return self._put_s[ref.sha256] if ref.sha256 in self.contents else None

    def release_unless_renewed(self, ref: BlobRef, *, since: float) -> bool:
        if (put := self.own_since(ref)) is not None and put > since:
            return False
        self.release(ref)
        return True

    def get(self, ref: BlobRef) -> bytes:
        if ref.sha256 not in self.contents:
            raise BlobMissing(ref.sha256)
        return self.contents[ref.sha256]

    def path(self, ref: BlobRef) -> Path:
        content, place = self.get(ref), self._folder / ref.sha256
        if not place.exists():
            place.write_bytes(content)
        return place

    def checked_path(self, ref: BlobRef) -> Path:
        return self.path(ref)

    def has(self, ref: BlobRef) -> bool:
        return ref.sha256 in self.contents

    def release(self, ref: BlobRef) -> None:
        self.contents.pop(ref.sha256, None)
