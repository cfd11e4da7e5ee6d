"""Following a stream by overlapping pulls: fast when far behind, immediate at the end, bounded in memory.

A pull consumer by start sequence without acknowledgements; two pulls overlap, so that the server always has one to
fill. What arrives is taken at once and by-passes the client library's queue, which would drop messages silently beyond
its limit. Pulls are asked for as events are consumed: a slow consumer holds at most what two pulls bring (`PULL_BYTES`
each) and disturbs nobody.
The server's consumer is thrown away at any irregularity (silence, reconnect, gap) and made anew at our own position.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from nats.errors import Error as NatsError

from events.connection import Connection, Unanswered
from events.envelope import Stored
from events.headers import event_id_in, parse_headers, status_in
from events.jetstream_api import StreamApi, position_in

PULL_EVENTS = 500
PULL_BYTES = 4 * 1024 * 1024
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
        self.expired = False
        """A pull came to its end unfilled, and nothing has arrived since."""
        self.arrived: list[Stored] = []
        self.lost = False
        self.wake = asyncio.Event()

    def receive(self, subject: bytes, reply: bytes, content: bytes, headers: bytes) -> None:
        """A `Receiver`."""
        status = "" if content else status_in(headers)
        if not status:
            self.arrived.append(Stored(position_in(reply), subject.decode(), content, event_id_in(headers)))
            self.outstanding -= 1
            self.expired = False
        elif status in ("408", "409") and (unfilled := parse_headers(headers).get("Nats-Pending-Messages")):
            self.outstanding -= int(unfilled)
            self.expired = True
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
    """Contiguous batches from position `after + 1` on; ends at a gap, when the server's consumer is lost, and when nothing
    is delivered though the stream goes on.

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
    pulls = _Pulls(connection, f"{api.prefix}.CONSUMER.MSG.NEXT.{api.stream}.{name}", inbox)
    reconnects = connection.stats["reconnects"]
    connection.watchers.add(pulls.wake)
    position = after
    try:
        async with connection.receiving(f"{inbox}.*", pulls.receive):
            while True:
                pulls.wake.clear()
                await pulls.ask()  # after: what comes meanwhile must not be slept over
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
                if pulls.expired and await _goes_on(api, position):
                    return
                pulls.expired = False
                if pulls.lost or connection.stats["reconnects"] != reconnects or connection.is_closed:
                    return
    except TimeoutError:
        return
    except NatsError as error:
        raise Unanswered(str(error) or type(error).__name__) from error
    finally:
        connection.watchers.discard(pulls.wake)


async def _goes_on(api: StreamApi, position: int) -> bool:
    """Whether the stream has events behind a position, though none was delivered: its files may be damaged there."""
    info = await api.once("STREAM.INFO")
    return int(info["state"]["last_seq"]) > position


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
