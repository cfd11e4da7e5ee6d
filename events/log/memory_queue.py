"""Work queues over the in-memory log, under the same contract as JetStream's."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import ACK_WAIT_S, Delivery, Handed, admit
from hindcast.events.subjects import matches

if TYPE_CHECKING:
    from hindcast.events.log.memory import MemoryLog


class _Lease(NamedTuple):
    tries: int
    due: float
    """When it goes to another worker."""


class QueueState:
    """What the broker would keep of a queue: shared by all who open it under the same name."""

    def __init__(self, clock: Callable[[], float], *, after: int) -> None:
        """`after`: position that the log begins after."""
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
        """It is done."""
        self._state.leases.pop(self._position, None)

    async def in_progress(self) -> None:
        """Start the wait anew."""
        await self.retry(ACK_WAIT_S)

    async def retry(self, delay_s: float) -> None:
        """Due again after the delay."""
        if self._position in self._state.leases:
            self._state.leases[self._position] = _Lease(self._tries, self._state.clock() + delay_s)


class MemoryQueue:
    """A `WorkQueue` in memory."""

    def __init__(
        self, log: "MemoryLog", name: str, state: QueueState, *, subject: str, dead_letters: Publisher | None
    ) -> None:
        """Opened by `MemoryLog.open_queue`."""
        self._log = log
        self._name = name
        self._state = state
        self._subject = subject
        self._dead_letters = dead_letters

    async def fetch(self, limit: int, *, wait_s: float) -> list[Delivery]:
        """See `WorkQueue.fetch`."""
        deadline = self._state.clock() + wait_s
        while not (taken := self._take(limit)):
            now = self._state.clock()
            if now >= deadline:
                return []
            due = min((lease.due for lease in self._state.leases.values()), default=deadline)
            await self._log.wait_for_growth(self._state.scanned, timeout_s=max(0.0, min(due, deadline) - now))
        deliveries = [
            await admit(handed, queue=self._name, dead_letters=self._dead_letters) for handed in taken
        ]
        return [delivery for delivery in deliveries if delivery is not None]

    def _take(self, limit: int) -> list[Handed]:
        state, now = self._state, self._state.clock()
        ready = sorted(position for position, lease in state.leases.items() if lease.due <= now)[:limit]
        events = self._log.events
        while len(ready) < limit and state.scanned < state.after + len(events):
            state.scanned += 1
            if matches(self._subject, events[state.scanned - state.after - 1].subject):
                ready.append(state.scanned)
        taken = []
        for position in ready:
            before = state.leases.get(position)
            tries = before.tries + 1 if before else 1
            state.leases[position] = _Lease(tries, now + ACK_WAIT_S)
            taken.append(Handed(events[position - state.after - 1], tries, _Handle(state, position, tries)))
        return taken
