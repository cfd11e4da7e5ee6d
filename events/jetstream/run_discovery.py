"""First questions to a broker before joining a run: its runs, and its clock."""

import time
from collections.abc import Callable
from datetime import datetime

from hindcast.core.errors import BrokerUnreachable
from hindcast.events.jetstream.api import StreamApi
from hindcast.events.jetstream.connection import Connection
from hindcast.events.subjects import STREAM, stream_name

BOUND_S = 15.0
"""Time limit of the broker's answers."""


async def runs_on(connection: Connection) -> list[str]:
    """List the names of the runs whose logs a broker holds, sorted.

    Raises:
        BrokerUnreachable, BrokerDenied.

    """
    api = StreamApi(connection, "", bound_s=BOUND_S)
    names: list[str] = []
    while True:
        answer = await api.call("STREAM.NAMES", {"offset": len(names)})
        names += answer["streams"] or []
        if not answer["streams"] or len(names) >= int(answer["total"]):
            return sorted(name.removeprefix(STREAM) for name in names if name.startswith(STREAM))


async def clock_ahead_s(connection: Connection, run: str, *, clock: Callable[[], float] = time.time) -> float:
    """Measure by how many seconds this machine's clock is ahead of the broker's; negative if behind.

    The error is at most half the time of one answer.

    Raises:
        BrokerUnreachable: the broker does not answer, or does not report its time (nats-server before 2.10).

    """
    api = StreamApi(connection, stream_name(run), bound_s=BOUND_S)
    asked = clock()
    answer = await api.call("STREAM.INFO")
    answered = clock()
    if "ts" not in answer:
        raise BrokerUnreachable("the broker does not say what time it is: nats-server 2.10 and later do")
    there = datetime.fromisoformat(answer["ts"]).timestamp()
    return (asked + answered) / 2 - there
