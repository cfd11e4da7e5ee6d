"""Following a stream by overlapping pulls: fast when far behind, immediate at the end, bounded in memory.

A pull consumer by start sequence without acknowledgements; two pulls overlap, so that the server always has one to
fill; their `max_bytes` stay below the client's pending limit, beyond which the client would drop messages silently.
Pulls are asked for as events are consumed: a slow consumer holds its own small buffer and disturbs nobody.
The server's consumer is thrown away at any irregularity (silence, reconnect, gap) and made anew at our own position.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from events.connection import Connection, Unanswered
from events.envelope import Stored
from events.jetstream_api import StreamApi, delivery_numbers, status_of

PULL_EVENTS = 500
PULL_BYTES = 4 * 1024 * 1024
PENDING_BYTES = 64 * 1024 * 1024
EXPIRES_S = 5.0
"""A pull that nothing fills is answered after this long, and repeated."""
SILENCE_S = 8.0
"""No message and no answer for this long: the consumer is lost."""
FORGOTTEN_S = 30.0
"""The server drops a consumer that nobody pulls from."""
NANOSECONDS = 1_000_000_000


class _Pulls:
    """What was asked for, what arrived."""

    def __init__(self, connection: Connection, subject: str, inbox: str) -> None:
        self._connection = connection
        self._subject = subject
        self._inbox = inbox
        self._asked = 0
        self.outstanding = 0
        self.arrived: list[Stored] = []
        self.lost = False
        self.wake = asyncio.Event()

    async def on_message(self, message: Msg) -> None:
        """Called by the client library, in order."""
        status = status_of(message)
        if status is None:
            position = delivery_numbers(message.reply).position
            event_id = (message.headers or {}).get("Nats-Msg-Id", "")
            self.arrived.append(Stored(position, message.subject, message.data, event_id))
            self.outstanding -= 1
        elif status in ("408", "409") and (unfilled := (message.headers or {}).get("Nats-Pending-Messages")):
            self.outstanding -= int(unfilled)
        elif status != "100":
            self.lost = True
        self.wake.set()

    async def ask(self) -> None:
        """Keep two pulls overlapping, as long as what arrived is consumed."""
        while self.outstanding + len(self.arrived) <= PULL_EVENTS:
            request = {"batch": PULL_EVENTS, "max_bytes": PULL_BYTES, "expires": int(EXPIRES_S * NANOSECONDS)}
            self._asked += 1
            self.outstanding += PULL_EVENTS
            await self._connection.publish(
                self._subject, json.dumps(request).encode(), reply=f"{self._inbox}.{self._asked}"
            )


async def pull(api: StreamApi, *, after: int) -> AsyncGenerator[list[Stored], None]:
    """Contiguous batches from position `after + 1` on; ends at a gap and when the server's consumer is lost.

    Raises:
        Unanswered: the broker does not answer.
        ApiError, BrokerDenied.

    """
    connection = api.connection
    name = f"tail-{connection.role}-{connection.new_inbox().rsplit('.', 1)[-1]}"
    config: dict[str, Any] = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": after + 1,
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": int(FORGOTTEN_S * NANOSECONDS),
        "mem_storage": True,
        "num_replicas": 1,
    }
    await api.once("CONSUMER.CREATE", {"stream_name": api.stream, "config": config}, suffix=f".{name}")
    inbox = connection.new_inbox()
    pulls = _Pulls(connection, f"$JS.API.CONSUMER.MSG.NEXT.{api.stream}.{name}", inbox)
    reconnects = connection.stats["reconnects"]
    try:
        subscription = await connection.subscribe(
            f"{inbox}.*", cb=pulls.on_message, pending_bytes_limit=PENDING_BYTES
        )
    except NatsError as error:
        raise Unanswered(str(error) or type(error).__name__) from error
    connection.watchers.add(pulls.wake)
    position = after
    try:
        while True:
            await pulls.ask()
            pulls.wake.clear()
            if not pulls.arrived:
                async with connection.bounded(SILENCE_S):
                    await pulls.wake.wait()
            batch, pulls.arrived = pulls.arrived, []
            whole = _following(batch, position)
            if whole:
                position = whole[-1].position
                yield whole
            if batch and batch[-1].position > position:
                return
            if pulls.lost or connection.stats["reconnects"] != reconnects or connection.is_closed:
                return
    except TimeoutError:
        return
    except NatsError as error:
        raise Unanswered(str(error) or type(error).__name__) from error
    finally:
        connection.watchers.discard(pulls.wake)
        if not (connection.is_closed or connection.is_draining):
            await subscription.unsubscribe()


def _following(batch: list[Stored], position: int) -> list[Stored]:
    """The part of a batch that follows `position` without a gap; what comes again is left out."""
    whole: list[Stored] = []
    for stored in batch:
        if stored.position == position + 1:
            whole.append(stored)
            position = stored.position
        elif stored.position > position:
            break
    return whole
