"""Work queues: one family of events handed out among workers, each until acknowledged.

Delivery is at least once: a worker that dies leaves its event to another after `ACK_WAIT_S`. So results must be
create-if-absent, and a delivery is acknowledged only after its result is durable. An event that was handed out
`MAX_TRIES` times without an acknowledgement is set aside with an `event.dead_lettered` fact.
"""

from typing import Protocol

import msgspec
import structlog

from hindcast.core.errors import CorruptEvent
from hindcast.events.catalogue.operation import EventDeadLettered
from hindcast.events.codec import decode
from hindcast.events.envelope import Recorded, Stored
from hindcast.events.log.publisher import Publisher

ACK_WAIT_S = 60.0
"""A delivery neither acknowledged nor reported in progress for this long goes to another worker."""
MAX_TRIES = 5
MAX_BACKOFF_S = 60.0

_log = structlog.get_logger(__name__)


class Handle(Protocol):
    """How an adapter is told what became of a delivery. Best effort: a lost word leads to another delivery."""

    async def ack(self) -> None:
        """It is done."""
        ...

    async def in_progress(self) -> None:
        """It takes longer; start the wait anew."""
        ...

    async def retry(self, delay_s: float) -> None:
        """Hand it out again after the delay."""
        ...


class Handed(msgspec.Struct, frozen=True):
    """What an adapter hands out."""

    stored: Stored
    tries: int
    """1 for the first time."""
    handle: Handle


class Delivery:
    """An event to be worked on."""

    __slots__ = ("_handle", "recorded", "traceparent", "tries")

    def __init__(self, recorded: Recorded, tries: int, handle: Handle, traceparent: str = "") -> None:
        self.recorded = recorded
        self.tries = tries
        self.traceparent = traceparent
        """Trace context that the event was recorded in; empty: none."""
        self._handle = handle

    async def ack(self) -> None:
        """Call once the result is durable."""
        await self._handle.ack()

    async def in_progress(self) -> None:
        """Call at least every `ACK_WAIT_S / 2` while working."""
        await self._handle.in_progress()

    async def retry(self, delay_s: float | None = None) -> None:
        """Give it back; by default after 1, 2, 4 … seconds."""
        await self._handle.retry(min(MAX_BACKOFF_S, 2.0 ** (self.tries - 1)) if delay_s is None else delay_s)


class WorkQueue(Protocol):
    """Events of one family, shared among the workers that open the queue under the same name."""

    async def fetch(self, limit: int, *, wait_s: float) -> list[Delivery]:
        """Up to `limit` deliveries as soon as there is one; empty after `wait_s`."""
        ...


class QueueSource(Protocol):
    """A log that also hands out work."""

    async def open_queue(self, name: str, *, family: str, dead_letters: Publisher | None = None) -> WorkQueue:
        """The durable queue `name` over one family, from the log's beginning. `dead_letters` records what is set aside."""
        ...


async def admit(handed: Handed, *, queue: str, dead_letters: Publisher | None) -> Delivery | None:
    """A delivery for the worker; None when the event was set aside or is of an unknown type.

    Raises:
        UnknownVersion: written by a newer Hindcast: no worker of this version may decide about it.

    """
    try:
        recorded = decode(handed.stored, strict=False)
    except CorruptEvent as error:
        await _set_aside(handed, str(error), queue=queue, dead_letters=dead_letters)
        return None
    if recorded is None:
        await handed.handle.ack()
        return None
    if handed.tries > MAX_TRIES:
        text = f"handed out {MAX_TRIES} times without being acknowledged"
        await _set_aside(handed, text, queue=queue, dead_letters=dead_letters, recorded=recorded)
        return None
    return Delivery(recorded, handed.tries, handed.handle, handed.stored.traceparent)


async def _set_aside(
    handed: Handed,
    error: str,
    *,
    queue: str,
    dead_letters: Publisher | None,
    recorded: Recorded | None = None,
) -> None:
    position = handed.stored.position
    _log.error("event set aside", queue=queue, position=position, error=error)
    if dead_letters is not None:
        await dead_letters.publish(
            EventDeadLettered(consumer=queue, position=position, tries=handed.tries - 1, error=error),
            entity=queue,
            ordinal=position,
            causation=recorded.envelope.id if recorded else None,
            correlation=recorded.envelope.correlation if recorded else None,
        )
        await dead_letters.commit()
    await handed.handle.ack()
