"""Work queues: deliver one family of events to workers, each event until it is acknowledged.

Delivery is at least once: if a worker dies, another gets its event after `ACK_WAIT_S`. So results must be create-if-absent,
and a delivery is acknowledged only after its result is durable. An event delivered `MAX_TRIES` times without an
acknowledgement is set aside with an `event.dead_lettered` fact.
"""

from typing import Protocol

import msgspec
import structlog

from hindcast.core.errors import CorruptEvent
from hindcast.events.catalogue.operation import EventDeadLettered
from hindcast.events.codec import decode
from hindcast.events.envelope import Envelope, Recorded, Stored
from hindcast.events.log.publisher import Publisher

ACK_WAIT_S = 60.0
"""Time after which a delivery that is neither acknowledged nor reported in progress goes to another worker."""
MAX_TRIES = 5
MAX_BACKOFF_S = 60.0

_log = structlog.get_logger(__name__)


class Handle(Protocol):
    """Reports the state of a delivery to the adapter. Best effort: a lost report leads to another delivery."""

    async def ack(self) -> None:
        """Acknowledge the delivery as done."""
        ...

    async def in_progress(self) -> None:
        """Restart the acknowledgement timeout."""
        ...

    async def retry(self, delay_s: float) -> None:
        """Request another delivery after the delay."""
        ...


class RawDelivery(msgspec.Struct, frozen=True):
    """An adapter's delivery, not decoded."""

    stored: Stored
    tries: int
    """Number of deliveries so far, from 1."""
    handle: Handle


class Delivery:
    """An event delivered to a worker."""

    __slots__ = ("_handle", "recorded", "traceparent", "tries")

    def __init__(self, recorded: Recorded, tries: int, handle: Handle, traceparent: str = "") -> None:
        self.recorded = recorded
        self.tries = tries
        self.traceparent = traceparent
        """Trace context in which the event was recorded; empty: none."""
        self._handle = handle

    async def ack(self) -> None:
        """Acknowledge the delivery. Call once the result is durable."""
        await self._handle.ack()

    async def in_progress(self) -> None:
        """Restart the acknowledgement timeout. Call at least every `ACK_WAIT_S / 2` while working."""
        await self._handle.in_progress()

    async def retry(self, delay_s: float | None = None) -> None:
        """Request another delivery after a delay, by default 1, 2, 4 … seconds."""
        await self._handle.retry(min(MAX_BACKOFF_S, 2.0 ** (self.tries - 1)) if delay_s is None else delay_s)


class WorkQueue(Protocol):
    """Events of one family, shared among the workers that open the queue under the same name."""

    async def fetch(self, limit: int, *, wait_s: float) -> list[Delivery]:
        """Return up to `limit` deliveries as soon as there is one; none after `wait_s`."""
        ...


class QueueSource(Protocol):
    """A log that also has work queues."""

    async def open_queue(self, name: str, *, family: str, dead_letters: Publisher | None = None) -> WorkQueue:
        """Open the durable queue `name` over one family, from the log's beginning. `dead_letters` records dead letters."""
        ...


async def admit(handed: RawDelivery, *, queue: str, dead_letters: Publisher | None) -> Delivery | None:
    """Decode a delivery for the worker; None if the event was set aside or has an unknown type.

    Raises:
        UnknownVersion: a newer Hindcast wrote the event; a worker of this version must not handle it.

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
    handed: RawDelivery,
    error: str,
    *,
    queue: str,
    dead_letters: Publisher | None,
    recorded: Recorded | None = None,
) -> None:
    position = handed.stored.position
    _log.error("event set aside", queue=queue, position=position, error=error)
    fact = EventDeadLettered(consumer=queue, position=position, tries=handed.tries - 1, error=error)
    await append_dead_letter(dead_letters, fact, recorded.envelope if recorded else None)
    await handed.handle.ack()


async def append_dead_letter(
    publisher: Publisher | None, fact: EventDeadLettered, envelope: Envelope | None
) -> None:
    """Append that an event was set aside, if there is a publisher. `envelope`: that of the event; None if it is unreadable."""
    if publisher is not None:
        await publisher.publish(
            fact,
            entity=fact.consumer,
            ordinal=fact.position,
            causation=envelope.id if envelope else None,
            correlation=envelope.correlation if envelope else None,
        )
        await publisher.commit()
