"""Trace context beside an event: written where there is a span, read back where somebody works on the event."""

import pytest
from conftest import Connect, LiveBroker

from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import RunFinished
from hindcast.events.envelope import Record
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher

pytestmark = [pytest.mark.parametrize("adapter", ["memory", "jetstream"]), pytest.mark.broker]

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def log(
    adapter: str, broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings
) -> MemoryLog | JetStreamLog:
    if adapter == "memory":
        return MemoryLog(run_name)
    return await JetStreamLog.create_or_open(await connect_as(broker, "admin"), run_name, log_settings)


@pytest.fixture
async def worker(
    log: MemoryLog | JetStreamLog, broker: LiveBroker, connect_as: Connect, log_settings: LogSettings
) -> MemoryLog | JetStreamLog:
    """The same log as the judge sees it, who works on a queue of it."""
    if isinstance(log, MemoryLog):
        return log
    await log.ensure_queue("verdicts", family="run")
    return await JetStreamLog.open(await connect_as(broker, "judge"), log.run, log_settings)


async def encoded(run: str, count: int, settings: LogSettings) -> list[Record]:
    """Events as a publisher encodes them."""
    beside = MemoryLog(run)
    async with Publisher(beside, producer="opening.1", code_rev="test", settings=settings) as publisher:
        for number in range(count):
            await publisher.publish(RunFinished(reason="told", updates=number, episodes=0), entity=run)
        await publisher.commit()
    assert [stored.traceparent for stored in beside.events] == [""] * count
    return [Record(stored.subject, stored.data, stored.id) for stored in beside.events]


async def test_the_context_of_an_event_is_read_back_with_it_and_is_none_of_its_bytes(
    log: MemoryLog | JetStreamLog, worker: MemoryLog | JetStreamLog, log_settings: LogSettings
) -> None:
    """Alone and in an atomic batch, by position, by subject and from a work queue."""
    one, two, three = await encoded(log.run, 3, log_settings)
    traced = [Record(r.subject, r.data, r.id, TRACEPARENT) for r in (one, two)]
    await log.append(traced[:1])
    await log.append([traced[1], three])
    stored = await log.read(after=0, limit=10)
    assert [found.traceparent for found in stored] == [TRACEPARENT, TRACEPARENT, ""]
    assert [found.data for found in stored] == [one.data, two.data, three.data]
    last = await log.last_under(one.subject)
    assert last is not None
    assert last.traceparent == ""
    queue = await worker.open_queue("verdicts", family="run")
    deliveries = await queue.fetch(3, wait_s=5)
    assert [delivery.traceparent for delivery in deliveries] == [TRACEPARENT, TRACEPARENT, ""]
