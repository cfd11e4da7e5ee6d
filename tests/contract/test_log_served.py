"""Who reads a run's stream, as the broker tells it: our tails and queues, and whatever other people's tools made."""

import asyncio

from conftest import Connect, LiveBroker

from core.settings import LogSettings
from events.catalogue import TaskAdmitted
from events.jetstream import JetStreamLog
from events.jetstream_api import StreamApi
from events.publisher import Publisher
from events.subjects import stream_name

EVENTS = 3


async def test_tails_queues_and_foreign_consumers_are_listed_with_how_far_they_were_served(
    jetstream_log: JetStreamLog,
    broker: LiveBroker,
    connect_as: Connect,
    run_name: str,
    log_settings: LogSettings,
) -> None:
    curriculum = await JetStreamLog.open(await connect_as(broker, "curriculum"), run_name, log_settings)
    async with Publisher(
        curriculum, producer="curriculum.1", code_rev="t", settings=log_settings
    ) as publisher:
        for number in range(EVENTS):
            await publisher.publish(TaskAdmitted(task_id=f"t{number}", phase=0), entity=f"t{number}")
    learner = await JetStreamLog.open(await connect_as(broker, "learner"), run_name, log_settings)
    tail = learner.tail(after=0)
    assert await anext(tail)
    foreign = StreamApi(await connect_as(broker, "reader"), stream_name(run_name), bound_s=5)
    for name, ack in (("x8Hs7Kd2", "none"), ("theirs", "explicit")):
        config = {"name": name, "ack_policy": ack, "inactive_threshold": 60_000_000_000}
        await foreign.call(
            "CONSUMER.CREATE", {"stream_name": foreign.stream, "config": config}, suffix=f".{name}"
        )
    async with asyncio.timeout(10):
        served = {one.name: one for one in await jetstream_log.served()}
    (ours,) = [one for one in served.values() if one.role == "learner"]
    assert ours.handed == EVENTS
    assert (served["x8Hs7Kd2"].role, served["x8Hs7Kd2"].queue) == ("", False)
    theirs = served["theirs"]
    assert (theirs.role, theirs.queue, theirs.waiting, theirs.oldest) == ("", True, EVENTS, 1)
    await tail.aclose()
