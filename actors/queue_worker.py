"""The worker loop shared by the roles that process a queue: judge and relabeler.

    queue ──> workers ──> handle(delivery)            concurrently: `following`, coroutines that follow the log

It waits for a delivery (`FETCH_S`). The handler acknowledges a delivery once its result is durable.
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
"""How long one fetch from the work queue waits; also how long `stop` waits for an idle worker."""
WORKERS = 4
"""Concurrent deliveries: one that hangs does not block the others."""
LAST_ASKED = MAX_TRIES - 1
"""The delivery at which a failure to ask is recorded, with its reason; the last one is not processed."""
OUTAGE_PAUSES_S = (15.0, 30.0, 60.0)
"""Pauses before redelivery while a judge's or relabeler's model is unreachable: a server restart, or a provider's short
outage, takes a minute or two.
"""
KEEP_S = ACK_WAIT_S / 3
"""How often a slow delivery is reported as in progress."""


async def run_queue_worker(
    queue: WorkQueue,
    handle: Callable[[Delivery], Awaitable[None]],
    *,
    stop: asyncio.Event,
    following: Sequence[Coroutine[Any, Any, None]],
    name: str,
    slow: bool = False,
) -> None:
    """Process one delivery after another in each worker until `stop`; `following` runs as long.

    `slow`: a delivery may take longer than the queue's redelivery time; it is reported as in progress meanwhile.

    Raises:
        HindcastError: the log is unusable; wrapped in an exception group.
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
    """Report a delivery as in progress forever, so that the queue does not redeliver it."""
    while True:
        await asyncio.sleep(KEEP_S)
        await delivery.in_progress()


def outage_pause_s(tries: int) -> float:
    """Pause in seconds before the next delivery, after `tries` deliveries."""
    return OUTAGE_PAUSES_S[min(tries, len(OUTAGE_PAUSES_S)) - 1]


async def exists(log: EventLog, kind: type[Fact], *, entity: str) -> bool:
    """Whether the log has an event that is created if absent."""
    return await log.last_under(subject_of(log.run, kind, key=entity)) is not None


async def append_once(
    publisher: Publisher, fact: Fact, *, entity: str, delivery: Delivery, episode: str
) -> bool:
    """Append an event that is created if absent; False when it exists already."""
    try:
        await publisher.decide(
            fact, entity=entity, causation=delivery.recorded.envelope.id, correlation=episode
        )
    except ExpectationFailed:
        return False
    return True
