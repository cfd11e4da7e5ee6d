"""Following a stream by ranged reads: no consumer on the server, immediate when far behind, bounded in memory.

While one range is consumed the next one is on its way: a slow reader holds at most two ranges (`READ_BYTES` each) and
disturbs nobody. At the end of the log it asks again after `FIRST_POLL_S`, and less often the longer nothing comes.
A consumer would push instead, but who may create one may also let it deliver into the log (`events.jetstream.accounts`).
A role of `FOLLOWERS` says at most every `REPORT_S` how far it has read, which `hindcast consumer list` and the archiver see.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

from nats.errors import Error as NatsError

from hindcast.events.envelope import Stored
from hindcast.events.jetstream.accounts import FOLLOWERS
from hindcast.events.jetstream.api import StreamApi
from hindcast.events.jetstream.connection import Connection, RequestTimeout

READ_EVENTS = 500
FIRST_POLL_S = 0.005
LONGEST_POLL_S = 0.1
"""How long an event may stand in the log before a reader that had nothing to do sees it."""
CHECK_S = 5.0
"""How long nothing may come before the reader looks whether the stream goes on without it."""
REPORT_S = 1.0
REFRESH_S = 15.0
"""A position that has not changed is said again after this long: the broker forgets it after `KEPT_S`."""
KEPT_S = 60.0


class _Position:
    """How far one follower has read, as the broker is told."""

    def __init__(self, connection: Connection, run: str) -> None:
        reader = connection.new_inbox().rsplit(".", 1)[-1]
        self._connection = connection
        self._subject = f"reading.{run}.{connection.role}.{reader}" if connection.role in FOLLOWERS else ""
        self._said = -1
        self._said_s = 0.0

    async def report(self, position: int) -> None:
        """Say it if that is due. Nobody waits for an answer: the position is for showing."""
        now_s = time.monotonic()
        due_s = REPORT_S if position != self._said else REFRESH_S
        if self._subject and (self._said < 0 or now_s - self._said_s >= due_s):
            self._said, self._said_s = position, now_s
            await self._connection.publish(self._subject, b"%d" % position)


async def follow(api: StreamApi, run: str, *, after: int) -> AsyncGenerator[list[Stored], None]:
    """Contiguous batches from position `after + 1` on; ends at a gap, at a reconnect, and when nothing is read though the
    stream goes on.

    Raises:
        Unanswered: the broker does not answer.
        ApiError, BrokerDenied.

    """
    connection = api.connection
    reconnects = connection.stats["reconnects"]
    said = _Position(connection, run)
    position = after
    pause_s = FIRST_POLL_S
    idle_since = time.monotonic()
    following = _read(api, position)
    try:
        while True:
            batch = await following
            if connection.stats["reconnects"] != reconnects or connection.is_closed:
                return
            whole = _following(batch, position)
            gap = len(whole) < len(batch)
            if whole:
                position = whole[-1].position
                pause_s, idle_since = FIRST_POLL_S, time.monotonic()
            elif time.monotonic() - idle_since > CHECK_S:
                if await _goes_on(api, position):
                    return
                idle_since = time.monotonic()
            if not whole and not gap:
                await said.report(position)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_POLL_S)
            following = _read(api, position)
            if whole:
                yield whole
                await said.report(position)
            if gap:
                return
    except NatsError as error:
        raise RequestTimeout(str(error) or type(error).__name__) from error
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _read(api: StreamApi, position: int) -> "asyncio.Task[list[Stored]]":
    return asyncio.create_task(api.ranged_once(start=position + 1, limit=READ_EVENTS))


async def _goes_on(api: StreamApi, position: int) -> bool:
    """Whether the stream has events behind a position, though none was read: its files may be damaged there."""
    info = await api.once("STREAM.INFO")
    return int(info["state"]["last_seq"]) > position


def _following(batch: list[Stored], position: int) -> list[Stored]:
    """The part of a batch that follows `position` without a gap."""
    whole: list[Stored] = []
    for stored in batch:
        if stored.position != position + 1:
            break
        whole.append(stored)
        position = stored.position
    return whole
