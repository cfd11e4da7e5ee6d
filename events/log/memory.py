"""`MemoryLog`: the log in memory with seeded faults, for tests and simulations, under the same contract as JetStream.

It is a broker and a lossy link to it in one: the broker stores, refuses and recognizes repeated ids; the link loses requests
or replies, delivers twice and delays, according to its seed.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from hashlib import sha256
from random import Random
from typing import NamedTuple

import msgspec

from hindcast.core.errors import ForeignLog
from hindcast.events.envelope import Record, Stored
from hindcast.events.log.append_once import (
    AlreadyStored,
    Committed,
    ExpectationRefused,
    Outcome,
    OutcomeUnknown,
    StreamFull,
    append_once,
)
from hindcast.events.log.port import Ancestor, Expectation, LogIdentity
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import ACK_WAIT_S, Delivery, RawDelivery, admit
from hindcast.events.subjects import family_wildcard, matches

READ_BATCH = 500


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of the link: probabilities per attempt, drawn from one generator."""

    seed: int
    lost_request: float = 0.0
    """Probability that the broker does not receive the request."""
    lost_reply: float = 0.0
    """Probability that the broker carries it out and the reply is lost."""
    duplicate: float = 0.0
    """Probability that the broker receives the request twice."""
    delay: float = 0.0
    """Probability that other tasks run before the request."""
    tries: int = 50
    """Number of attempts after which the outcome counts as unknown."""


class _Lease(NamedTuple):
    tries: int
    due: float
    """Time at which it is delivered to another worker."""


class QueueState:
    """The broker's state of a queue, shared by all that open it under the same name."""

    def __init__(self, clock: Callable[[], float], *, after: int) -> None:
        """`after`: position after which the log begins."""
        self.clock = clock
        self.after = after
        self.scanned = after
        self.leases: dict[int, _Lease] = {}


class _Handle:
    def __init__(self, state: QueueState, position: int, tries: int) -> None:
        self._state = state
        self._position = position
        self._tries = tries

    async def ack(self) -> None:
        """Remove the finished event from the queue."""
        self._state.leases.pop(self._position, None)

    async def in_progress(self) -> None:
        """Restart the acknowledgement timeout."""
        await self.retry(ACK_WAIT_S)

    async def retry(self, delay_s: float) -> None:
        """Make the event due again after the delay."""
        if self._position in self._state.leases:
            self._state.leases[self._position] = _Lease(self._tries, self._state.clock() + delay_s)


class MemoryLog:
    """An `EventLog` and `QueueSource` in memory. Several publishers and readers may share one."""

    lineage: tuple[Ancestor, ...] = ()

    def __init__(
        self,
        run: str,
        *,
        faults: Faults | None = None,
        max_bytes: int | None = None,
        first: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_bytes`: size at which appends are refused, a mutable attribute; `first`: position of the first event;
        `clock`: clock of the queues.
        """
        self.max_bytes = max_bytes
        self.reachable = True
        """Whether the broker answers; set it to False to simulate an outage."""
        self.run = run
        self._before = first - 1
        self._faults = faults or Faults(seed=0)
        self._random = Random(self._faults.seed)
        self.events: list[Stored] = []
        """Stored events, for tests to inspect and damage."""
        self._bytes = 0
        self._by_id: dict[str, int] = {}
        self._last_under: dict[str, int] = {}
        self._grown = asyncio.Condition()
        self._clock = clock
        self._queues: dict[str, QueueState] = {}

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        """See `EventLog.append`."""
        tries = 0

        def patience() -> bool:
            nonlocal tries
            tries += 1
            return tries < self._faults.tries

        async def pause(_: int) -> None:
            await asyncio.sleep(0)

        return await append_once(self, batch, expect, patience=patience, pause=pause)

    async def attempt(self, batch: Sequence[Record], expect: Expectation | None) -> Outcome:
        """Send one request over the lossy link."""
        faults, draw = self._faults, self._random.random
        if draw() < faults.delay:
            await asyncio.sleep(0)
        if not self.reachable or draw() < faults.lost_request:
            return OutcomeUnknown("no reply from the in-memory broker")
        outcome = await self._store(batch, expect)
        if draw() < faults.duplicate:
            await self._store(batch, expect)
        if draw() < faults.lost_reply:
            return OutcomeUnknown("no reply from the in-memory broker")
        return outcome

    async def find(self, batch: Sequence[Record]) -> list[int | None] | None:
        """Find the positions of stored events by id; None during an outage."""
        if not self.reachable:
            return None
        return [self._by_id.get(record.id) for record in batch]

    async def _store(self, batch: Sequence[Record], expect: Expectation | None) -> Outcome:
        stored_positions = [self._by_id[record.id] for record in batch if record.id in self._by_id]
        if stored_positions and len(batch) > 1:
            return AlreadyStored()
        if expect is not None and self._position_under(expect.subject) != expect.last:
            return ExpectationRefused()  # checked before a single repeated id, as in JetStream
        if stored_positions:
            return Committed(stored_positions)
        size = sum(len(record.data) for record in batch)
        if self.max_bytes is not None and self._bytes + size > self.max_bytes:
            return StreamFull()
        first = self._last + 1
        for position, record in enumerate(batch, first):
            self.events.append(Stored(position, record.subject, record.data, record.id, record.traceparent))
            self._by_id[record.id] = position
            self._last_under[record.subject] = position
        self._bytes += size
        async with self._grown:
            self._grown.notify_all()
        return Committed(list(range(first, first + len(batch))))

    @property
    def _last(self) -> int:
        return self._before + len(self.events)

    def _position_under(self, subject: str) -> int:
        if "*" not in subject and ">" not in subject:
            return self._last_under.get(subject, 0)
        return max(
            (position for name, position in self._last_under.items() if matches(subject, name)), default=0
        )

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        """See `EventLog.read`."""
        start = max(0, after - self._before)
        return self.events[start : start + limit]

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        """See `EventLog.tail`."""
        position = after
        if position > self._last:
            raise ForeignLog(
                f"the log of run {self.run} ends at {self._last}, reading was asked after {after}."
            )
        while True:
            await self.wait_for_growth(position)
            batch = await self.read(after=position, limit=READ_BATCH)
            position = batch[-1].position
            yield batch

    async def wait_for_growth(self, position: int, *, timeout_s: float | None = None) -> None:
        """Return once the log has grown beyond a position, or after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s), self._grown:
                while self._last <= position:
                    await self._grown.wait()
        except TimeoutError:
            return

    async def open_queue(
        self, name: str, *, family: str, dead_letters: Publisher | None = None
    ) -> "MemoryQueue":
        """See `events.log.work_queue.QueueSource`."""
        state = self._queues.setdefault(name, QueueState(self._clock, after=self._before))
        return MemoryQueue(
            self, name, state, subject=family_wildcard(self.run, family), dead_letters=dead_letters
        )

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        """See `EventLog.last_under`."""
        position = self._position_under(subject)
        if until is not None and position > until:
            return next(
                (
                    s
                    for s in reversed(self.events[: max(0, until - self._before)])
                    if matches(subject, s.subject)
                ),
                None,
            )
        return self.events[position - self._before - 1] if position else None

    async def identity(self) -> LogIdentity:
        """See `EventLog.identity`."""
        first = sha256(self.events[0].data).digest() if self.events else b""
        return LogIdentity(
            run=self.run,
            first_digest=first,
            first=self._before + 1 if self.events else 0,
            last=self._last,
        )


class MemoryQueue:
    """A `WorkQueue` in memory."""

    def __init__(
        self, log: MemoryLog, name: str, state: QueueState, *, subject: str, dead_letters: Publisher | None
    ) -> None:
        """Use `MemoryLog.open_queue`."""
        self._log = log
        self._name = name
        self._state = state
        self._subject = subject
        self._dead_letters = dead_letters

    async def fetch(self, limit: int, *, wait_s: float) -> list[Delivery]:
        """See `WorkQueue.fetch`."""
        deadline = self._state.clock() + wait_s
        while not (handed_out := self._take(limit)):
            current = self._state.clock()
            if current >= deadline:
                return []
            next_due = min((lease.due for lease in self._state.leases.values()), default=deadline)
            await self._log.wait_for_growth(
                self._state.scanned, timeout_s=max(0.0, min(next_due, deadline) - current)
            )
        deliveries = [
            await admit(handed, queue=self._name, dead_letters=self._dead_letters) for handed in handed_out
        ]
        return [delivery for delivery in deliveries if delivery is not None]

    def _take(self, limit: int) -> list[RawDelivery]:
        state, now = self._state, self._state.clock()
        ready = sorted(position for position, lease in state.leases.items() if lease.due <= now)[:limit]
        events = self._log.events
        while len(ready) < limit and state.scanned < state.after + len(events):
            state.scanned += 1
            if matches(self._subject, events[state.scanned - state.after - 1].subject):
                ready.append(state.scanned)
        handed_out = []
        for position in ready:
            before = state.leases.get(position)
            tries = before.tries + 1 if before else 1
            state.leases[position] = _Lease(tries, now + ACK_WAIT_S)
            handed_out.append(
                RawDelivery(events[position - state.after - 1], tries, _Handle(state, position, tries))
            )
        return handed_out
