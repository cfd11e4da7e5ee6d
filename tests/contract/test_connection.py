"""The connection to the broker: what the client library gets wrong and ours must not."""

import asyncio

import pytest
from conftest import Connect, LiveBroker


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
