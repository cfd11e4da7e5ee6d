"""The broker killed with -9 again and again under continuous publishing: nothing acknowledged is lost, nothing is twice.

Publishers in this process go on by themselves. One publisher in a process of its own is killed, too, and started again.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import Connect, LiveBroker

from hindcast.core.errors import ExpectationFailed
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import EpisodeAbandoned, SamplesSwept, TaskAdmitted
from hindcast.events.envelope import Recorded
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.consumer import consume
from hindcast.events.log.port import Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read

pytestmark = pytest.mark.broker

KILLS = 4
FACTS_BETWEEN = 150
BOUND_S = 120.0
RUN = "chaos"
ROOT = Path(__file__).parents[2]


class Names:
    """A consumer's durable state: the entities in order, with its position."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.reached = 0

    async def position(self) -> int:
        return self.reached

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        self.names += [recorded.envelope.entity for recorded in recordeds]
        self.reached = position


@pytest.fixture
def settings() -> LogSettings:
    return LogSettings(max_bytes=256 * 1024 * 1024, append_timeout_s=60, linger_ms=2, batch_events=50)


async def kill_repeatedly(broker: LiveBroker, acknowledged: list[str], over: asyncio.Event) -> None:
    """Each time after some facts were acknowledged and while more are on their way."""
    for kill in range(KILLS + 1):
        enough = len(acknowledged) + FACTS_BETWEEN
        await asyncio.sleep(0.7)
        while len(acknowledged) < enough:  # noqa: ASYNC110 - publishers add to it
            await asyncio.sleep(0.05)
        if kill < KILLS:
            await asyncio.to_thread(broker.kill)
            await asyncio.sleep(0.1)
            broker.start()
    over.set()


async def test_publishers_survive_a_broker_that_dies_again_and_again(
    own_broker: LiveBroker, connect_as: Connect, settings: LogSettings
) -> None:
    await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), RUN, settings)
    acknowledged: list[str] = []
    decided: list[str] = []
    over = asyncio.Event()

    async def publish(role: str, number: int) -> None:
        """Facts in bursts, each burst committed before the next."""
        log = await JetStreamLog.open(await connect_as(own_broker, role), RUN, settings)
        async with Publisher(log, producer=f"{role}.{number}", code_rev="t", settings=settings) as publisher:
            burst = 0
            while not over.is_set():
                names = [f"{role}.{number}_{burst}_{index}" for index in range(30)]
                for name in names:
                    await publisher.publish(TaskAdmitted(task_id=name, phase=0), entity=name)
                await publisher.commit()
                acknowledged.extend(names)
                burst += 1

    async def rival(number: int) -> None:
        """Two of these decide about the same episodes."""
        log = await JetStreamLog.open(await connect_as(own_broker, "actor"), RUN, settings)
        async with Publisher(log, producer=f"actor.{number}", code_rev="t", settings=settings) as publisher:
            episode = 0
            while not over.is_set():
                name = f"ep_{episode}"
                fact = EpisodeAbandoned(
                    episode=name, task_id="t", reason="error", detail=str(number), steps=0
                )
                try:
                    await publisher.decide(fact, entity=name)
                    decided.append(name)
                except ExpectationFailed:
                    pass
                episode += 1

    async def learn() -> int:
        """A fenced single writer never loses its place."""
        log = await JetStreamLog.open(await connect_as(own_broker, "learner"), RUN, settings)
        async with Publisher(log, producer="learner.1", code_rev="t", settings=settings) as publisher:
            last = batch = 0
            while not over.is_set():
                expect = Expectation(subject=f"run.{RUN}.learner.>", last=last)
                fact = SamplesSwept(episodes=(), reason="stale", version=batch)
                last = await publisher.decide(fact, entity=f"batch_{batch}", expect=expect)
                batch += 1
        return batch

    reader = await JetStreamLog.open(await connect_as(own_broker, "projector"), RUN, settings)
    live = Names()
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as consumers:
        follower = consumers.create_task(consume(reader, live, name="live"))
        async with asyncio.TaskGroup() as producers:
            producers.create_task(publish("curriculum", 1))
            producers.create_task(publish("curriculum", 2))
            producers.create_task(rival(1))
            producers.create_task(rival(2))
            learner = producers.create_task(learn())
            producers.create_task(kill_repeatedly(own_broker, acknowledged, over))
        follower.cancel()
    assert live.reached > 0, "the consumer did not follow"
    await consume(reader, live, name="live", until=(await reader.identity()).last)

    stored = [recorded.envelope.entity async for recorded in read(reader)]
    assert len(stored) == len(set(stored)), "an event is twice"
    assert set(acknowledged) <= set(stored), "an acknowledged event is lost"
    assert set(decided) <= set(stored), "a decision is lost"
    assert len(decided) == len(set(decided)), "both rivals were told that they had decided"
    assert {name for name in stored if name.startswith("ep_")} == set(decided)
    assert [name for name in stored if name.startswith("batch_")] == [
        f"batch_{n}" for n in range(learner.result())
    ]
    assert live.names == stored, "the consumer saw something else than the log holds"
    assert len(acknowledged) >= (KILLS + 1) * FACTS_BETWEEN


WRITER = """
import asyncio, sys
from pathlib import Path
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import TaskAdmitted
from hindcast.events.jetstream.connection import connect
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.publisher import Publisher

async def main(url, home, run, life):
    settings = LogSettings(append_timeout_s=60, linger_ms=2)
    connection = await connect(url, role="curriculum", home=Path(home), timeout_s=30)
    log = await JetStreamLog.open(connection, run, settings)
    async with Publisher(log, producer="curriculum.1", code_rev="t", settings=settings) as publisher:
        for number in range(1_000_000):
            name = f"{life}_{number}"
            await publisher.publish(TaskAdmitted(task_id=name, phase=0), entity=name)
            if number % 10 == 9:
                await publisher.commit()
                sys.stdout.write(name + "\\n")
                sys.stdout.flush()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_publisher_comes_back_as_a_new_incarnation_and_loses_nothing_acknowledged(
    own_broker: LiveBroker, connect_as: Connect, settings: LogSettings, tmp_path: Path
) -> None:
    log = await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), RUN, settings)
    said: list[str] = []
    for life in ("a", "b", "c"):
        output = tmp_path / f"{life}.txt"
        with output.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", WRITER, own_broker.url, str(own_broker.home), RUN, life),
                stdout=file,
                cwd=ROOT,
            )
        try:
            async with asyncio.timeout(BOUND_S):
                while output.read_bytes().count(b"\n") < 20:
                    assert process.returncode is None, "the writer ended by itself"
                    await asyncio.sleep(0.05)
        finally:
            process.kill()
            await process.wait()
        said += [line for line in output.read_text().split("\n")[:-1] if line]
    events = [recorded async for recorded in read(log)]
    stored = [recorded.envelope.entity for recorded in events]
    assert len(stored) == len(set(stored)), "an event is twice"
    for name in said:
        life, last = name.split("_")
        assert {f"{life}_{number}" for number in range(int(last) + 1)} <= set(stored), (
            "an acknowledged event is lost"
        )
    assert len({recorded.envelope.incarnation for recorded in events}) == 3
