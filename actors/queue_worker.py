"""What the roles that work off a queue have in common: judge and relabeler.

    queue ──> workers ──> handle(delivery)            beside them: what has to follow the log meanwhile

Waits for a delivery (`FETCH_S`). Whoever handles one acknowledges it once its result is durable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from hindcast.core.errors import ExpectationFailed
from hindcast.events.envelope import Fact
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import ACK_WAIT_S, MAX_TRIES, Delivery, WorkQueue
from hindcast.events.subjects import subject_of

FETCH_S = 2.0
"""How long one look at the work queue waits; also how long `stop` waits for an idle worker."""
WORKERS = 4
"""Deliveries in work at the same time: one that hangs does not hold up the others."""
LAST_ASKED = MAX_TRIES - 1
"""The try at which what could not be asked about is recorded as such, with why; the one after it is not looked at."""
OUTAGE_PAUSES_S = (15.0, 30.0, 60.0)
"""Until an end is handed out again whose judge or relabeler is out of reach: a server that is started again, or a provider's
short outage, takes a minute or two."""
KEEP_S = ACK_WAIT_S / 3
"""How often the queue hears that a delivery is still worked on."""


async def run_queue_worker(
    queue: WorkQueue,
    handle: Callable[[Delivery], Awaitable[None]],
    *,
    stop: asyncio.Event,
    following: Sequence[Coroutine[Any, Any, None]],
    name: str,
    slow: bool = False,
) -> None:
    """One delivery after the other until `stop`; `following` runs as long as that.

    `slow`: one may take longer than the queue waits before it hands it to somebody else; it is told meanwhile.

    Raises:
        HindcastError: the log cannot be used any more; wrapped in an exception group.

    """

    async def work(background: asyncio.TaskGroup) -> None:
        while not stop.is_set():
            for delivery in await queue.fetch(1, wait_s=FETCH_S):
                keeping = background.create_task(_keep(delivery)) if slow else None
                try:
                    await handle(delivery)
                finally:
                    if keeping is not None:
                        keeping.cancel()

    async with asyncio.TaskGroup() as background:
        beside = [background.create_task(one) for one in following]
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(work(background), name=f"{name} {number}")
        for task in beside:
            task.cancel()


async def _keep(delivery: Delivery) -> None:
    """Say for ever that a delivery is being worked on, so that nobody else gets it meanwhile."""
    while True:
        await asyncio.sleep(KEEP_S)
        await delivery.in_progress()


def outage_pause_s(tries: int) -> float:
    """Seconds until the next try, after so many."""
    return OUTAGE_PAUSES_S[min(tries, len(OUTAGE_PAUSES_S)) - 1]


async def exists(log: EventLog, kind: type[Fact], *, entity: str) -> bool:
    """Whether a fact that is created if absent stands in the log."""
    return await log.last_under(subject_of(log.run, kind, key=entity)) is not None


async def append_once(
    publisher: Publisher, fact: Fact, *, entity: str, delivery: Delivery, episode: str
) -> bool:
    """Append a fact that is created if absent; False when it stood there already."""
    try:
        await publisher.decide(
            fact, entity=entity, causation=delivery.recorded.envelope.id, correlation=episode
        )
    except ExpectationFailed:
        return False
    return True
