"""Who reads a run's stream, as the broker tells it: the work queues, and what followers say of themselves."""

import asyncio

import pytest
from conftest import Connect, LiveBroker

from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import TaskAdmitted
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.publisher import Publisher

pytestmark = pytest.mark.broker

EVENTS = 3


async def test_queues_and_followers_are_listed_with_how_far_they_have_come(
    jetstream_log: JetStreamLog,
    broker: LiveBroker,
    connect_as: Connect,
    run_name: str,
    log_settings: LogSettings,
) -> None:
    await jetstream_log.make_positions()
    await jetstream_log.ensure_queue("verdicts", family="curriculum")
    curriculum = await JetStreamLog.open(await connect_as(broker, "curriculum"), run_name, log_settings)
    async with Publisher(
        curriculum, producer="curriculum.1", code_rev="t", settings=log_settings
    ) as publisher:
        for number in range(EVENTS):
            await publisher.publish(TaskAdmitted(task_id=f"t{number}", phase=0), entity=f"t{number}")
    tails = {}
    for role in ("learner", "reader"):
        log = await JetStreamLog.open(await connect_as(broker, role), run_name, log_settings)
        tails[role] = log.tail(after=0)
        assert await anext(tails[role])
        following = asyncio.create_task(anext(tails[role]))  # it says how far it has read before it waits
        async with asyncio.timeout(10):
            while role == "learner" and len(await jetstream_log.served()) < 2:  # noqa: ASYNC110 - told by the broker
                await asyncio.sleep(0.05)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    served = {one.role or one.name: one for one in await jetstream_log.served()}
    assert set(served) == {"learner", "verdicts"}, "an attached reader leaves nothing on the broker"
    assert served["learner"].handed == EVENTS
    assert (served["verdicts"].queue, served["verdicts"].waiting, served["verdicts"].oldest) == (
        True,
        EVENTS,
        1,
    )
