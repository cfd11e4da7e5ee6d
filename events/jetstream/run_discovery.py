"""What somebody who joins a run asks of its broker first: which runs there are, and what time it is there."""

import time
from collections.abc import Callable
from datetime import datetime

from hindcast.core.errors import BrokerUnreachable
from hindcast.events.jetstream.api import StreamApi
from hindcast.events.jetstream.connection import Connection
from hindcast.events.subjects import STREAM, stream_name

BOUND_S = 15.0
"""How long a broker may take to answer somebody who only looks."""


async def runs_on(connection: Connection) -> list[str]:
    """Names of the runs whose logs a broker holds, sorted.

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
    """How many seconds this machine's clock is before the broker's; below 0: behind. Exact to half the time of an answer.

    Raises:
        BrokerUnreachable: it does not answer, or tells no time (nats-server before 2.10).

    """
    api = StreamApi(connection, stream_name(run), bound_s=BOUND_S)
    asked = clock()
    answer = await api.call("STREAM.INFO")
    answered = clock()
    if "ts" not in answer:
        raise BrokerUnreachable("the broker does not say what time it is: nats-server 2.10 and later do")
    there = datetime.fromisoformat(answer["ts"]).timestamp()
    return (asked + answered) / 2 - there
