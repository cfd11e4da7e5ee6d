"""Follow a stream by ranged reads: no consumer on the server, fast when far behind, bounded in memory.

While one range is consumed the next one is requested: a slow reader holds at most two ranges (`READ_BYTES` each) and does not
affect others. At the end of the log it polls after `FIRST_POLL_S`, and less often the longer nothing comes. A consumer would
push instead, but a role that may create one could make it deliver into the log (`events.jetstream.accounts`). A role of
`FOLLOWERS` reports its position at most every `REPORT_S`, for `hindcast consumer list` and the archiver.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

from nats.errors import Error as NatsError

from hindcast.events.envelope import Stored
from hindcast.events.jetstream.accounts import FOLLOWERS
from hindcast.events.jetstream.api import StreamApi
from hindcast.events.jetstream.connection import Connection, RequestTimeout

READ_EVENTS = 4000
"""Events per request, if they fit into `READ_BYTES`: each request costs the broker a count of what is left."""
SLICE_EVENTS = 500
"""Most events in a batch, so that decoding one does not block the event loop for long."""
FIRST_POLL_S = 0.02
"""Polling sooner than a run produces events (15 a second) costs more processor time than reading them does."""
LONGEST_POLL_S = 0.2
"""Longest pause between polls: an idle reader sees a new event after at most this."""
CHECK_S = 5.0
"""Time without events after which the reader checks whether the stream has grown."""
REPORT_S = 1.0
REFRESH_S = 15.0
"""Interval of reports of an unchanged position: the broker forgets it after `KEPT_S`."""
KEPT_S = 60.0


class _Position:
    """Reports a follower's position to the broker."""

    def __init__(self, connection: Connection, run: str) -> None:
        reader = connection.new_inbox().rsplit(".", 1)[-1]
        self._connection = connection
        self._subject = f"reading.{run}.{connection.role}.{reader}" if connection.role in FOLLOWERS else ""
        self._said = -1
        self._said_s = 0.0

    async def report(self, position: int) -> None:
        """Report the position if that is due, without waiting for an answer."""
        now_s = time.monotonic()
        due_s = REPORT_S if position != self._said else REFRESH_S
        if self._subject and (self._said < 0 or now_s - self._said_s >= due_s):
            self._said, self._said_s = position, now_s
            await self._connection.publish(self._subject, b"%d" % position)


async def follow(
    api: StreamApi, run: str, *, after: int, headers: bool
) -> AsyncGenerator[list[Stored], None]:
    """Yield contiguous batches from position `after + 1` on; without `headers` their subjects and ids are `UNREAD`.

    It ends at a gap, at a reconnect, and if nothing is read although the stream has grown.

    Raises:
        RequestTimeout: the broker does not answer.
        ApiError, BrokerDenied.

    """
    connection = api.connection
    reconnects = connection.stats["reconnects"]
    reported = _Position(connection, run)
    position = after
    pause_s = FIRST_POLL_S
    idle_since = time.monotonic()
    following = _request(api, position, headers=headers)
    try:
        while True:
            batch = await following
            if connection.stats["reconnects"] != reconnects or connection.is_closed:
                return
            contiguous = _following(batch, position)
            gap = len(contiguous) < len(batch)
            if contiguous:
                position = contiguous[-1].position
                pause_s, idle_since = FIRST_POLL_S, time.monotonic()
            elif time.monotonic() - idle_since > CHECK_S:
                if await _goes_on(api, position):
                    return
                idle_since = time.monotonic()
            if not contiguous and not gap:
                await reported.report(position)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_POLL_S)
            following = _request(api, position, headers=headers)
            for first in range(0, len(contiguous), SLICE_EVENTS):
                yield contiguous[first : first + SLICE_EVENTS]
                await asyncio.sleep(0)
            if contiguous:
                await reported.report(position)
            if gap:
                return
    except NatsError as error:
        raise RequestTimeout(str(error) or type(error).__name__) from error
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _request(api: StreamApi, position: int, *, headers: bool) -> "asyncio.Task[list[Stored]]":
    return asyncio.create_task(api.ranged_once(start=position + 1, limit=READ_EVENTS, headers=headers))


async def _goes_on(api: StreamApi, position: int) -> bool:
    """Whether the stream has events after a position although none was read, as when its files are damaged there."""
    info = await api.once("STREAM.INFO")
    return int(info["state"]["last_seq"]) > position


def _following(batch: list[Stored], position: int) -> list[Stored]:
    """Return the part of a batch that follows `position` without a gap."""
    contiguous: list[Stored] = []
    for stored in batch:
        if stored.position != position + 1:
            break
        contiguous.append(stored)
        position = stored.position
    return contiguous
