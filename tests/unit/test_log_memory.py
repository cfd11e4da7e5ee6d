"""What the log in memory is for: faults by seed, a broker that goes away, queues on a clock of the test's own."""

import pytest

from hindcast.core.errors import BrokerUnreachable, ExpectationFailed
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import EventDeadLettered, TaskAdmitted
from hindcast.events.envelope import Record
from hindcast.events.log.append_once import append_once
from hindcast.events.log.memory import Faults, MemoryLog
from hindcast.events.log.port import Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.log.work_queue import ACK_WAIT_S, MAX_TRIES
from hindcast.events.subjects import matches

SETTINGS = LogSettings(linger_ms=0)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def ids(seed: int) -> tuple[int, list[str]]:
    """How often the link was tried, and what is stored, under one seed."""
    log = MemoryLog("r", faults=Faults(seed=seed, lost_request=0.4, lost_reply=0.4, duplicate=0.4))
    tries = 0

    async def count(_: int) -> None:
        nonlocal tries
        tries += 1

    for number in range(20):
        batch = [Record("run.r.run.x", b"x", f"{number}-{index}") for index in range(2)]
        await append_once(log, batch, None, patience=lambda: True, pause=count)
    return tries, [stored.id for stored in log.events]


async def test_the_same_seed_gives_the_same_faults() -> None:
    assert await ids(3) == await ids(3)
    assert (await ids(3))[0] != (await ids(4))[0]
    assert (await ids(3))[0] > 5, "there were faults"
    assert len((await ids(3))[1]) == 40


async def test_a_broker_that_is_away_is_named_and_what_was_stored_stays() -> None:
    log = MemoryLog("r", faults=Faults(seed=1, tries=3))
    one = [Record("run.r.run.x", b"x", "1")]
    await log.append(one)
    log.reachable = False
    with pytest.raises(BrokerUnreachable, match=r"2 events to the log of run r .* after 3 tries"):
        await log.append([Record("run.r.run.x", b"x", name) for name in "23"])
    log.reachable = True
    assert await log.append(one) == [1]


async def test_a_batch_stored_in_part_is_never_completed_under_an_expectation() -> None:
    """The whole was decided otherwise: what is stored of it came from another batch."""
    log = MemoryLog("r")
    first, second = Record("run.r.run.x", b"x", "1"), Record("run.r.run.x", b"x", "2")
    await log.append([first])
    with pytest.raises(ExpectationFailed):
        await log.append([first, second], expect=Expectation(subject="run.r.run.x", last=1))
    assert len(log.events) == 1


async def test_work_of_a_worker_that_died_goes_to_another_after_the_wait() -> None:
    clock = Clock()
    log = MemoryLog("r", clock=clock)
    async with Publisher(log, producer="curriculum.1", code_rev="t", settings=SETTINGS) as publisher:
        await publisher.publish(TaskAdmitted(task_id="a", phase=0), entity="a")
    dead = await log.open_queue("work", family="curriculum")
    other = await log.open_queue("work", family="curriculum")
    (lost,) = await dead.fetch(1, wait_s=0)
    clock.now_s += ACK_WAIT_S - 1
    assert await other.fetch(1, wait_s=0) == []
    await lost.in_progress()
    clock.now_s += ACK_WAIT_S - 1
    assert await other.fetch(1, wait_s=0) == [], "in_progress starts the wait anew"
    clock.now_s += 2
    (again,) = await other.fetch(1, wait_s=0)
    assert (again.tries, again.recorded.envelope.entity) == (2, "a")


async def test_work_that_kills_every_worker_is_set_aside() -> None:
    clock = Clock()
    log = MemoryLog("r", clock=clock)
    async with Publisher(log, producer="curriculum.1", code_rev="t", settings=SETTINGS) as publisher:
        await publisher.publish(TaskAdmitted(task_id="a", phase=0), entity="a")
        await publisher.commit()
        queue = await log.open_queue("work", family="curriculum", dead_letters=publisher)
        for tries in range(1, MAX_TRIES + 1):
            (delivery,) = await queue.fetch(1, wait_s=0)
            assert delivery.tries == tries
            clock.now_s += ACK_WAIT_S + 1
        assert await queue.fetch(1, wait_s=0) == []
        clock.now_s += 10 * ACK_WAIT_S
        assert await queue.fetch(1, wait_s=0) == []
    letters = [recorded.fact async for recorded in read(log) if isinstance(recorded.fact, EventDeadLettered)]
    assert [(letter.consumer, letter.position, letter.tries) for letter in letters] == [
        ("work", 1, MAX_TRIES)
    ]


@pytest.mark.parametrize(
    ("pattern", "subject", "result"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.b.c", "a.b", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.b.c", False),
        ("*", "a", True),
    ],
)
def test_subjects_match_as_in_nats(pattern: str, subject: str, result: bool) -> None:
    assert matches(pattern, subject) is result
