"""The connection to the broker: what the client library gets wrong and ours must not."""

import asyncio
from contextlib import suppress

import pytest
from conftest import Connect, LiveBroker
from nats.aio.msg import Msg

from hindcast.core.settings.schema import LogSettings
from hindcast.events.jetstream.connection import RequestTimeout, connect
from hindcast.events.jetstream.stream_log import JetStreamLog

pytestmark = pytest.mark.broker


async def test_a_cancellation_that_arrives_while_a_message_is_handed_over_is_not_lost(
    broker: LiveBroker, connect_as: Connect
) -> None:
    connection = await connect_as(broker, "admin")
    await connection.flush()  # its flusher waits at the queue of now
    flushing = connection._flush_queue
    assert flushing is not None
    full: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue(maxsize=1)
    full.put_nowait(asyncio.get_running_loop().create_future())
    connection._flush_queue = full  # nobody takes from it: the next flush has to wait
    ended = asyncio.Event()

    async def tell_for_ever() -> None:
        try:
            while True:
                await connection._flush_pending()
                await asyncio.Event().wait()
        finally:
            ended.set()

    telling = asyncio.create_task(tell_for_ever())
    await asyncio.sleep(0.05)
    telling.cancel()
    async with asyncio.timeout(5):
        await ended.wait()
    connection._flush_queue = flushing
    with pytest.raises(asyncio.CancelledError):
        await telling


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("cancelled", range(3))
async def test_a_cancellation_that_comes_together_with_the_answer_is_not_lost(
    cancelled: int, refused: bool, broker: LiveBroker, connect_as: Connect
) -> None:
    """`asyncio.wait_for` before Python 3.12 returns the answer and drops the cancellation."""
    connection = await connect_as(broker, "admin")
    asked: list[str] = []

    async def ask_for_ever() -> None:
        while True:
            with suppress(RequestTimeout):
                await connection.ask("$JS.log.API.STREAM.NAMES", timeout_s=5)
            asked.append("answered")

    await connection.ask("$JS.log.API.STREAM.NAMES", timeout_s=5)  # subscribes for answers
    (subscription,) = connection._subs.values()
    answer = connection._request_sub_callback

    async def answer_and_cancel(message: Msg) -> None:
        if refused:
            message.headers = {"Status": "503"}
        await answer(message)
        if len(asked) == cancelled:
            asking.cancel()

    subscription._cb = answer_and_cancel
    asking = asyncio.create_task(ask_for_ever())
    await asyncio.wait({asking}, timeout=5)
    try:
        assert asking.done()
        assert asking.cancelled()
        assert len(asked) == cancelled
    finally:
        asking.cancel()


async def test_a_cancellation_that_comes_together_with_a_failed_try_to_connect_is_not_lost(
    broker: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library takes the failure alone, and tries again."""

    async def fail_and_cancel(**_where: object) -> None:
        connecting.cancel()
        monkeypatch.setattr(asyncio, "open_connection", fail)
        await fail()

    async def fail(**_where: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio, "open_connection", fail_and_cancel)
    connecting = asyncio.create_task(connect(broker.url, role="admin", home=broker.home, timeout_s=60))
    await asyncio.wait({connecting}, timeout=5)
    ended = connecting.done()
    connecting.cancel()
    assert ended


async def test_the_socket_of_a_failed_try_to_reconnect_is_closed(broker: LiveBroker) -> None:
    """The client library opens the next one and forgets it, open."""
    ends: list[asyncio.Future[bytes]] = []
    third = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(asyncio.get_running_loop().create_future())
        number = len(ends)
        if number == 1:  # a broker that goes away
            writer.write(b'INFO {"server_id":"s","version":"2.12.0","max_payload":1048576}\r\n')
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
        else:  # one that is not ready yet
            writer.write(b"-ERR 'starting'\r\n")
            if number == 3:
                third.set()
            ends[-1].set_result(await reader.read())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = await connect(f"nats://127.0.0.1:{port}", role="admin", home=broker.home, timeout_s=20)
        try:
            async with asyncio.timeout(10):
                await third.wait()
                assert await ends[1] == b""
        finally:
            await connection.close()


async def test_a_cancellation_of_closing_while_the_broker_is_away_is_not_lost(own_broker: LiveBroker) -> None:
    connection = await connect(own_broker.url, role="admin", home=own_broker.home, timeout_s=20)
    own_broker.kill()
    async with asyncio.timeout(10):
        while not connection.is_reconnecting:  # noqa: ASYNC110 - the library has no event for it
            await asyncio.sleep(0.01)

    async def close_and_stay() -> None:
        await connection.close()
        await asyncio.Event().wait()

    closing = asyncio.create_task(close_and_stay())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing}, timeout=5)
    ended = closing.done()
    closing.cancel()
    assert ended


async def test_a_reader_ends_whenever_it_is_cancelled(broker: LiveBroker, run_name: str) -> None:
    """While it connects, asks, follows: forty moments of its first twentieth of a second."""

    async def follow() -> None:
        connection = await connect(broker.url, role="admin", home=broker.home, timeout_s=20)
        try:
            log = await JetStreamLog.create_or_open(connection, run_name, LogSettings())
            async for _batch in log.tail(after=0):
                pass
        finally:
            await connection.close()

    for moment in range(40):
        following = asyncio.create_task(follow())
        await asyncio.sleep(moment * 0.05 / 40)
        following.cancel()
        await asyncio.wait({following}, timeout=5)
        ended = following.done()
        following.cancel()
        assert ended, f"still following after it was cancelled {moment * 50 / 40:.1f} ms after its start"
