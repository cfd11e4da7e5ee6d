"""The publisher: order, chains, decisions, back-pressure, and what happens when the log refuses."""

import asyncio
from collections.abc import Sequence

import pytest

from hindcast.core.errors import BrokerDenied, BrokerUnreachable, ExpectationFailed, LogFull
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import EpisodeAbandoned, SamplesSwept, TaskAdmitted
from hindcast.events.codec import MAX_EVENT_BYTES, EventTooLarge
from hindcast.events.envelope import Record, Recorded
from hindcast.events.log.memory import Faults, MemoryLog
from hindcast.events.log.port import Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read


def settings(**changes: object) -> LogSettings:
    return LogSettings(linger_ms=1, append_timeout_s=1).model_copy(update=changes)


def publisher(log: MemoryLog, producer: str = "curriculum.1", **changes: object) -> Publisher:
    return Publisher(log, producer=producer, code_rev="rev", settings=settings(**changes))


def admitted(name: object) -> TaskAdmitted:
    return TaskAdmitted(task_id=str(name), phase=0)


def abandoned(episode: str, reason: str = "x") -> EpisodeAbandoned:
    return EpisodeAbandoned(episode=episode, task_id="t", reason=reason, detail="", steps=0)


async def everything(log: MemoryLog) -> list[Recorded]:
    return [recorded async for recorded in read(log)]


class CountingLog(MemoryLog):
    """Remembers the sizes of the batches."""

    def __init__(self, run: str, **kwargs: object) -> None:
        super().__init__(run, **kwargs)  # type: ignore[arg-type]
        self.batches: list[int] = []

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        self.batches.append(len(batch))
        return await super().append(batch, expect=expect)


async def test_facts_arrive_in_order_with_envelope_and_chain() -> None:
    log = MemoryLog("r1")
    async with publisher(log) as one:
        for number in range(700):
            await one.publish(
                admitted(number),
                entity=f"t{number}",
                ordinal=number,
                causation="c",
                correlation="ep",
                policy_version=4,
            )
        assert await one.commit() == 700
        events = await everything(log)
    assert [event.envelope.ordinal for event in events] == list(range(700))
    assert [event.envelope.producer_seq for event in events] == list(range(700))
    first = events[0].envelope
    assert (first.run, first.producer, first.entity, first.causation, first.correlation) == (
        "r1",
        "curriculum.1",
        "t0",
        "c",
        "ep",
    )
    assert (first.policy_version, first.code_rev, first.prev_hash) == (4, "rev", b"")
    assert events[1].envelope.prev_hash == events[0].digest
    assert log.events[0].subject == f"run.r1.curriculum.{one.incarnation}"
    assert len({event.envelope.id for event in events}) == 700


async def test_facts_travel_in_batches_and_a_commit_does_not_linger() -> None:
    log = CountingLog("r1")
    async with publisher(log, linger_ms=60_000, batch_events=256) as one:
        for number in range(600):
            await one.publish(admitted(number), entity="t")
        start = asyncio.get_running_loop().time()
        await one.commit()
        assert asyncio.get_running_loop().time() - start < 30
    assert log.batches == [256, 256, 88]


async def test_a_batch_keeps_to_its_bytes() -> None:
    log = CountingLog("r1")
    async with publisher(log) as one:
        for _ in range(6):
            await one.publish(admitted("x" * 400_000), entity="t")
    assert log.batches == [2, 2, 2]


async def test_what_follows_from_a_decision_is_appended_with_it_or_not_at_all() -> None:
    """In one batch, whatever else is queued: a writer that dies leaves both or neither."""
    log = CountingLog("r1")
    family = Expectation(subject="run.r1.curriculum.>", last=0)
    told = (admitted("told"), admitted("too"))
    async with publisher(log, linger_ms=60_000) as one:
        position = await one.decide(admitted("first"), entity="t", expect=family, follows=told)
        await one.publish(admitted("later"), entity="t")
        await one.commit()
        with pytest.raises(ExpectationFailed):
            await one.decide(admitted("refused"), entity="t", expect=family, follows=told)
        await one.publish(admitted("last"), entity="t")
        await one.commit()
    assert position == 1
    assert log.batches == [3, 1, 3, 1]
    events = await everything(log)  # with its chain checked
    assert [event.fact.task_id for event in events] == ["first", "told", "too", "later", "last"]  # type: ignore[attr-defined]
    assert [event.envelope.producer_seq for event in events] == [0, 1, 2, 3, 4]


async def test_leaving_drains_the_queue() -> None:
    log = MemoryLog("r1", faults=Faults(seed=1, lost_reply=0.5, lost_request=0.3, delay=0.5))
    async with publisher(log) as one:
        for number in range(100):
            await one.publish(admitted(number), entity="t")
    assert len(log.events) == 100


async def test_leaving_after_an_error_still_drains_and_raises_the_error() -> None:
    log = MemoryLog("r1")

    async def work() -> None:
        async with publisher(log, linger_ms=500) as one:
            await one.publish(admitted(1), entity="t")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await work()
    assert len(log.events) == 1


async def test_a_cancelled_process_leaves_with_its_events_acknowledged() -> None:
    log = MemoryLog("r1")
    started = asyncio.Event()

    async def work() -> None:
        async with publisher(log, linger_ms=500) as one:
            for number in range(10):
                await one.publish(admitted(number), entity="t")
            started.set()
            await asyncio.sleep(3600)

    task = asyncio.ensure_future(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(log.events) == 10


async def test_a_decision_goes_after_what_was_queued_and_returns_its_position() -> None:
    log = MemoryLog("r1")
    async with publisher(log) as one:
        await one.publish(admitted(1), entity="t")
        assert await one.decide(abandoned("ep_1"), entity="ep_1") == 2
        await one.publish(admitted(2), entity="t")
        assert await one.commit() == 3
    assert log.events[1].subject == "run.r1.episode_end.ep_1"


async def test_a_second_decision_about_an_entity_is_refused_and_the_chain_does_not_advance() -> None:
    log = MemoryLog("r1")
    async with publisher(log) as one, publisher(log, "actor.1") as two:
        await one.decide(abandoned("ep_1", "lease_expired"), entity="ep_1")
        with pytest.raises(ExpectationFailed):
            await two.decide(abandoned("ep_1", "error"), entity="ep_1")
        await two.decide(abandoned("ep_2"), entity="ep_2")
    events = await everything(log)
    assert [(e.envelope.producer, e.envelope.producer_seq) for e in events] == [
        ("curriculum.1", 0),
        ("actor.1", 0),
    ]


async def test_a_fenced_writer_is_refused_after_somebody_else_wrote() -> None:
    log = MemoryLog("r1")
    family = "run.r1.learner.>"
    swept = SamplesSwept(episodes=(), reason="stale", version=1)
    async with publisher(log, "learner.1") as first, publisher(log, "learner.1") as second:
        position = await first.decide(swept, entity="b0", expect=Expectation(subject=family, last=0))
        await first.publish(admitted("noise"), entity="t")
        await first.commit()
        next_one = await second.decide(swept, entity="b1", expect=Expectation(subject=family, last=position))
        with pytest.raises(ExpectationFailed):
            await first.decide(swept, entity="b1", expect=Expectation(subject=family, last=position))
    assert (position, next_one) == (1, 3)


async def test_a_decision_is_certain_although_replies_get_lost() -> None:
    for seed in range(20):
        log = MemoryLog("r1", faults=Faults(seed=seed, lost_reply=0.6, lost_request=0.2, duplicate=0.3))
        async with publisher(log) as one:
            assert await one.decide(abandoned("ep_1"), entity="ep_1") == 1
            with pytest.raises(ExpectationFailed):
                await one.decide(abandoned("ep_1"), entity="ep_1")
        assert len(log.events) == 1


async def test_publishers_wait_while_the_queue_is_full() -> None:
    class Gate(MemoryLog):
        gate = asyncio.Event()

        async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
            await self.gate.wait()
            return await super().append(batch, expect=expect)

    log = Gate("r1")
    async with publisher(log, queue_events=10, batch_events=5) as one:

        async def many() -> None:
            for number in range(40):
                await one.publish(admitted(number), entity="t", ordinal=number)

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(many())
            await asyncio.sleep(0.1)
            assert not task.done(), "15 at most are taken while the log hangs"
            log.gate.set()
    assert [event.envelope.ordinal for event in await everything(log)] == list(range(40))


async def test_a_full_log_is_said_to_who_commits_and_nothing_is_lost() -> None:
    log = MemoryLog("r1", max_bytes=2_000)
    async with publisher(log, append_timeout_s=0.6, batch_events=1) as one:
        for number in range(20):
            await one.publish(admitted(number), entity="t", ordinal=number)
        with pytest.raises(LogFull, match=r"log of run r1 has been full .* stay queued"):
            await one.commit()
        with pytest.raises(LogFull):
            await one.decide(abandoned("ep_1"), entity="ep_1")
        log.max_bytes = None
        assert await one.commit() >= 20
    assert [e.envelope.ordinal for e in await everything(log) if e.envelope.type == "task.admitted"] == list(
        range(20)
    )


async def test_a_decision_withdrawn_because_the_log_was_full_is_not_made_later() -> None:
    log = MemoryLog("r1", max_bytes=10)
    async with publisher(log, append_timeout_s=0.3) as one:
        with pytest.raises(LogFull):
            await one.decide(abandoned("ep_1"), entity="ep_1")
        log.max_bytes = None
        await asyncio.sleep(0.6)
        await one.decide(abandoned("ep_2"), entity="ep_2")
    assert [event.envelope.entity for event in await everything(log)] == ["ep_2"]


async def test_leaving_a_full_log_says_what_was_not_appended() -> None:
    log = MemoryLog("r1", max_bytes=10)
    with pytest.raises(LogFull, match=r"1 facts of curriculum\.1.* were not appended"):
        async with publisher(log, append_timeout_s=0.5) as one:
            await one.publish(admitted(1), entity="t")


async def test_an_unreachable_broker_stops_the_process_with_its_reason() -> None:
    log = MemoryLog("r1", faults=Faults(seed=1, tries=3))
    log.reachable = False

    async def work() -> None:
        async with publisher(log) as one:
            await one.publish(admitted(1), entity="t")
            await asyncio.sleep(3600)

    with pytest.raises(BrokerUnreachable, match=r"had no known outcome after 3 tries"):
        await work()


class DenyingLog(MemoryLog):
    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        raise BrokerDenied("not yours")


async def test_whoever_waits_hears_what_stopped_the_writer() -> None:
    heard: list[str] = []

    async def work() -> None:
        async with publisher(DenyingLog("r1")) as one:
            await one.publish(admitted(1), entity="t")
            for wait in (
                one.commit(),
                one.decide(abandoned("e"), entity="e"),
                one.publish(admitted(2), entity="t"),
            ):
                try:
                    await wait
                except (BrokerDenied, asyncio.CancelledError) as error:
                    heard.append(str(error))

    with pytest.raises(BrokerDenied, match="not yours"):
        await work()
    assert heard.count("not yours") >= 2


async def test_a_fact_too_large_is_refused_at_once_and_the_rest_goes_on() -> None:
    log = MemoryLog("r1")
    async with publisher(log) as one:
        with pytest.raises(EventTooLarge, match=r"task\.admitted of t takes"):
            await one.publish(admitted("x" * MAX_EVENT_BYTES), entity="t")
        await one.publish(admitted(1), entity="t")
    assert len(log.events) == 1


@pytest.mark.parametrize("entity", ["", "a b", "a.*", "a>", ".a", "a..b"])
async def test_an_entity_that_cannot_be_a_subject_is_refused(entity: str) -> None:
    async with publisher(MemoryLog("r1")) as one:
        with pytest.raises(ValueError, match=r"cannot be part of a subject"):
            await one.decide(abandoned("e"), entity=entity)


async def test_a_new_start_is_a_new_incarnation_with_its_own_chain() -> None:
    log = MemoryLog("r1")
    for _ in range(2):
        async with publisher(log, "actor.1") as one:
            await one.publish(abandoned("e"), entity="e")
            await one.publish(abandoned("f"), entity="f")
    events = await everything(log)
    assert [event.envelope.producer_seq for event in events] == [0, 1, 0, 1]
    assert len({event.envelope.incarnation for event in events}) == 2


async def test_a_closed_publisher_takes_nothing_more() -> None:
    one = publisher(MemoryLog("r1"))
    async with one:
        pass
    with pytest.raises(RuntimeError, match=r"is closed"):
        await one.publish(admitted(1), entity="t")
