"""A work queue in the broker that somebody changed or removed is made anew, and the log says so."""

from pathlib import Path

import pytest
from conftest import Connect, LiveBroker

from hindcast.app.runs.runs import RunHandle, create_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.bus import QueueWatch, check_queues, make_queues, queues_of
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import EpisodeRequested, QueueRepaired
from hindcast.events.jetstream.api import StreamApi
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.jetstream.stream_queue import queue_config
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.subjects import stream_name

pytestmark = pytest.mark.broker

RUN = "watched"


def requested(episode: str) -> EpisodeRequested:
    task = Task(environment="store", family="f", seed=1, instruction="i", goal={}, max_steps=3)
    return EpisodeRequested(
        episode=episode,
        task=task,
        group="g",
        member=0,
        group_size=1,
        attempt=0,
        origin="online",
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=60.0,
    )


def repairs_in(facts: list[object]) -> list[QueueRepaired]:
    return [fact for fact in facts if isinstance(fact, QueueRepaired)]


@pytest.fixture
async def handle(own_broker: LiveBroker, tmp_path: Path) -> RunHandle:
    overrides = [f"log.url={own_broker.url}", "log.queue_check_s=0.1"]
    resolved = resolve(folder=tmp_path, environment={}, overrides=overrides)
    return create_run(resolved, name=RUN, home=own_broker.home)


@pytest.fixture
async def stream(own_broker: LiveBroker, connect_as: Connect, handle: RunHandle) -> JetStreamLog:
    made = await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), RUN, handle.settings.log)
    await make_queues(handle, made)
    return made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"filter_subject": f"run.{RUN}.control.>"}, "filter_subject was 'run.watched.control.>'"),
        ({"max_ack_pending": 1}, "max_ack_pending was 1"),
        (None, "it was not there"),
    ],
)
async def test_a_changed_or_vanished_queue_is_made_anew_and_reported(
    change: dict[str, object] | None,
    words: str,
    stream: JetStreamLog,
    handle: RunHandle,
    own_broker: LiveBroker,
    connect_as: Connect,
    log_settings: LogSettings,
) -> None:
    curriculum = await JetStreamLog.open(await connect_as(own_broker, "curriculum"), RUN, log_settings)
    async with Publisher(
        curriculum, producer="curriculum.1", code_rev="t", settings=log_settings
    ) as publisher:
        await publisher.publish(requested("ep_1"), entity="ep_1")
    admin = StreamApi(await connect_as(own_broker, "admin"), stream_name(RUN), bound_s=5)
    await admin.call("CONSUMER.DELETE", suffix=".episodes")
    if change is not None:
        config = queue_config(RUN, "episodes", family="request") | change
        body = {"stream_name": admin.stream, "config": config}
        await admin.call("CONSUMER.CREATE", body, suffix=f".episodes.{config['filter_subject']}")
    await check_queues(handle, stream)
    await check_queues(handle, stream)
    (repair,) = repairs_in([recorded.fact async for recorded in read(stream)])
    assert repair.queue == "episodes"
    assert words in repair.wrong
    worker = await JetStreamLog.open(await connect_as(own_broker, "actor"), RUN, log_settings)
    queue = await worker.open_queue("episodes", family="request")
    (delivery,) = await queue.fetch(1, wait_s=5)
    assert delivery.recorded.envelope.entity == "ep_1", "what was requested before is handed out again"


async def test_the_watch_repairs_by_itself_while_a_worker_waits(
    stream: JetStreamLog,
    handle: RunHandle,
    own_broker: LiveBroker,
    connect_as: Connect,
    log_settings: LogSettings,
) -> None:
    admin = StreamApi(await connect_as(own_broker, "admin"), stream_name(RUN), bound_s=5)
    await admin.call("CONSUMER.DELETE", suffix=".verdicts")
    watch = QueueWatch(handle)
    watch.start()
    try:
        judge = await JetStreamLog.open(await connect_as(own_broker, "judge"), RUN, log_settings)
        await judge.open_queue("verdicts", family="episode_end")
    finally:
        watch.stop()
    assert repairs_in([recorded.fact async for recorded in read(stream)])


def test_a_run_without_a_relabeler_has_no_queue_of_relabels(handle: RunHandle) -> None:
    assert "relabels" not in queues_of(handle)
