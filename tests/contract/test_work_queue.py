"""What every `WorkQueue` promises: each event until acknowledged, shared among workers, set aside after too many tries."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from conftest import Connect, LiveBroker

from hindcast.core.errors import UnknownVersion
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import EventDeadLettered, PhaseStarted, TaskAdmitted, WaitExceeded
from hindcast.events.envelope import Record
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.log.work_queue import MAX_TRIES, QueueSource
from hindcast.events.registry import BY_CLASS

pytestmark = [pytest.mark.parametrize("adapter", ["memory", "jetstream"]), pytest.mark.broker]


class Bench:
    """The family `curriculum`, written by its role; handed out to workers of the role `judge`, and of `relabeler`."""

    def __init__(
        self,
        log: EventLog,
        publisher: Publisher,
        source: QueueSource,
        letters: Publisher,
        *,
        other_source: QueueSource,
    ) -> None:
        self.log = log
        self.publisher = publisher
        self.source = source
        self.letters = letters
        self.other_source = other_source

    async def add(self, *names: str) -> None:
        for name in names:
            await self.publisher.publish(TaskAdmitted(task_id=name, phase=0), entity=name)
        await self.publisher.commit()


@pytest.fixture
async def bench(
    adapter: str, broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings
) -> AsyncIterator[Bench]:
    log: MemoryLog | JetStreamLog
    work: MemoryLog | JetStreamLog
    other: MemoryLog | JetStreamLog
    if adapter == "memory":
        log = work = other = MemoryLog(run_name)
    else:
        made = await JetStreamLog.create_or_open(await connect_as(broker, "admin"), run_name, log_settings)
        for name in ("verdicts", "relabels"):
            await made.ensure_queue(name, family="curriculum")
        log = await JetStreamLog.open(await connect_as(broker, "curriculum"), run_name, log_settings)
        work = await JetStreamLog.open(await connect_as(broker, "judge"), run_name, log_settings)
        other = await JetStreamLog.open(await connect_as(broker, "relabeler"), run_name, log_settings)
    async with (
        Publisher(log, producer="curriculum.1", code_rev="test", settings=log_settings) as publisher,
        Publisher(work, producer="judge.1", code_rev="test", settings=log_settings) as letters,
    ):
        yield Bench(log, publisher, work, letters, other_source=other)


def names(deliveries: list[object]) -> list[str]:
    return [delivery.recorded.envelope.entity for delivery in deliveries]  # type: ignore[attr-defined]


async def test_events_of_the_family_are_handed_out_in_order(bench: Bench) -> None:
    await bench.add("a", "b")
    await bench.publisher.publish(WaitExceeded(setting="s", limit_s=1, waited_for="w"), entity="other")
    await bench.add("c")
    queue = await bench.source.open_queue("verdicts", family="curriculum")
    assert names(await queue.fetch(10, wait_s=5)) == ["a", "b", "c"]


async def test_a_fetch_keeps_to_its_limit_and_the_rest_stays_for_others(bench: Bench) -> None:
    await bench.add("a", "b", "c")
    mine = await bench.source.open_queue("verdicts", family="curriculum")
    others = await bench.source.open_queue("verdicts", family="curriculum")
    assert names(await mine.fetch(2, wait_s=5)) == ["a", "b"]
    assert names(await others.fetch(2, wait_s=5)) == ["c"]


async def test_an_empty_queue_answers_after_the_wait(bench: Bench) -> None:
    queue = await bench.source.open_queue("verdicts", family="curriculum")
    start = asyncio.get_running_loop().time()
    assert await queue.fetch(5, wait_s=0.3) == []
    assert 0.2 < asyncio.get_running_loop().time() - start < 3


async def test_a_waiting_fetch_gets_what_comes(bench: Bench) -> None:
    queue = await bench.source.open_queue("verdicts", family="curriculum")

    async def later() -> None:
        await asyncio.sleep(0.2)
        await bench.add("a")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(later())
        assert names(await queue.fetch(5, wait_s=10)) == ["a"]


async def test_acknowledged_work_does_not_come_again(bench: Bench) -> None:
    await bench.add("a", "b")
    queue = await bench.source.open_queue("verdicts", family="curriculum")
    for delivery in await queue.fetch(10, wait_s=5):
        await delivery.ack()
    again = await bench.source.open_queue("verdicts", family="curriculum")
    assert await again.fetch(10, wait_s=0.3) == []


async def test_work_given_back_comes_again_after_its_delay_and_counts_the_tries(bench: Bench) -> None:
    await bench.add("a")
    queue = await bench.source.open_queue("verdicts", family="curriculum")
    (first,) = await queue.fetch(1, wait_s=5)
    await first.in_progress()
    await first.retry(0.3)
    assert await queue.fetch(1, wait_s=0.05) == []
    (second,) = await queue.fetch(1, wait_s=5)
    assert (first.tries, second.tries) == (1, 2)
    assert second.recorded == first.recorded


async def test_queues_of_different_names_each_get_everything(bench: Bench) -> None:
    await bench.add("a", "b")
    for source, name in ((bench.source, "verdicts"), (bench.other_source, "relabels")):
        queue = await source.open_queue(name, family="curriculum")
        assert names(await queue.fetch(10, wait_s=5)) == ["a", "b"]


async def test_work_that_nobody_finishes_is_set_aside_with_a_fact(bench: Bench) -> None:
    await bench.add("poison", "good")
    queue = await bench.source.open_queue("verdicts", family="curriculum", dead_letters=bench.letters)
    tries = 0
    while tries < MAX_TRIES:
        for delivery in await queue.fetch(10, wait_s=5):
            if delivery.recorded.envelope.entity == "poison":
                tries += 1
                assert delivery.tries == tries
                await delivery.retry(0)
            else:
                await delivery.ack()
    assert await queue.fetch(10, wait_s=1) == []
    assert await queue.fetch(10, wait_s=0.3) == []
    facts = [recorded.fact async for recorded in read(bench.log)]
    (letter,) = [fact for fact in facts if isinstance(fact, EventDeadLettered)]
    assert (letter.consumer, letter.position, letter.tries) == ("verdicts", 1, MAX_TRIES)


async def test_bytes_that_do_not_decode_are_set_aside_and_the_rest_goes_on(
    bench: Bench, run_name: str
) -> None:
    await bench.log.append([Record(f"run.{run_name}.curriculum.x", b"\xc1 no event", "broken")])
    await bench.add("good")
    queue = await bench.source.open_queue("verdicts", family="curriculum", dead_letters=bench.letters)
    assert names(await queue.fetch(10, wait_s=5) + await queue.fetch(10, wait_s=0.3)) == ["good"]
    last = await bench.log.last_under(f"run.{run_name}.notice.>")
    assert last is not None
    assert b"event.dead_lettered" in last.data


async def test_work_of_an_unknown_newer_version_stops_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setitem(BY_CLASS, PhaseStarted, BY_CLASS[PhaseStarted]._replace(version=2))
        await bench.publisher.publish(PhaseStarted(phase=1, reference_version=0), entity="run")
        await bench.publisher.commit()
    queue = await bench.source.open_queue("verdicts", family="curriculum")
    with pytest.raises(UnknownVersion, match=r"phase\.started version 2"):
        await queue.fetch(1, wait_s=5)
