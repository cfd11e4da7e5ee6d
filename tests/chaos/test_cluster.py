"""A cluster of three servers that others run: one dies in the middle of appends, and nothing is lost or doubled."""

import asyncio
from pathlib import Path

import pytest

from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import WaitExceeded
from hindcast.events.jetstream.api import StreamApi
from hindcast.events.jetstream.connection import Connection, connect
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.subjects import stream_name
from servers.nats_servers import Server, cluster_of_three, serving

pytestmark = [pytest.mark.slow, pytest.mark.broker]

RUN = "replicated"
FACTS = 600
WRITERS = 3


def fact(number: int) -> WaitExceeded:
    return WaitExceeded(setting="of a test", limit_s=float(number), waited_for="a quorum")


async def leader(connection: Connection) -> str:
    """Name of the server through which the stream is written now."""
    info = await StreamApi(connection, stream_name(RUN), bound_s=60).call("STREAM.INFO")
    assert info["config"]["num_replicas"] == 3
    return str(info["cluster"]["leader"])


async def write(url: str, home: Path, settings: LogSettings, *, number: int, half: asyncio.Event) -> int:
    """Append `FACTS` facts as one producer, each chunk acknowledged; returns the last position."""
    connection = await connect(url, role="actor", home=home, timeout_s=60)
    try:
        log = await JetStreamLog.open(connection, RUN, settings)
        async with Publisher(log, producer=f"actor.{number}", code_rev="", settings=settings) as publisher:
            for each in range(FACTS):
                await publisher.publish(fact(each), entity=f"w{number}", ordinal=each)
                if each % 20 == 0:
                    await publisher.commit()
                if each == FACTS // 2:
                    half.set()
            return await publisher.commit()
    finally:
        await connection.close()


async def _go_through(servers: list[Server], home: Path) -> None:
    url = ",".join(server.url for server in servers)
    settings = LogSettings(url=url, replicas=3, append_timeout_s=120, max_bytes=1 << 28)
    admin = await connect(url, role="admin", home=home, timeout_s=60)
    try:
        await JetStreamLog.create_or_open(admin, RUN, settings)
        half = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            writers = [
                group.create_task(write(url, home, settings, number=number, half=half))
                for number in range(WRITERS)
            ]
            await half.wait()
            dead = servers[int((await leader(admin)).removeprefix("n"))]
            dead.kill()
        assert max(writer.result() for writer in writers) == WRITERS * FACTS
        assert await leader(admin) != dead.folder.name
        assert dead.start(), dead.words()
        log = await JetStreamLog.open(admin, RUN, settings)
        seen = [recorded async for recorded in read(log)]  # asserts contiguity and hash chains
    finally:
        await admin.close()
    found = [(recorded.envelope.entity, recorded.envelope.ordinal) for recorded in seen]
    assert sorted(found) == [(f"w{number}", each) for number in range(WRITERS) for each in range(FACTS)]


def test_a_server_that_dies_in_the_middle_of_appends_takes_nothing_with_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with serving(6, cluster_of_three(tmp_path, home=home)) as servers:
        asyncio.run(_go_through(servers, home))
