"""Plain HTTP calls against a real server on a socket that answers as it is told to, byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from hindcast.actors.http_calls import call

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answering) -> AsyncIterator[str]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def says(*lines: str, body: bytes = b"") -> Answering:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body)
        await writer.drain()

    return answer


async def test_every_status_is_an_answer_with_its_body() -> None:
    async with serving(says("HTTP/1.1 404 Not Found", body="nö".encode())) as address:
        answer = await call(address)
    assert (answer.status, answer.text, answer.error) == (404, "nö", "")


async def test_a_redirect_is_the_answer() -> None:
    async with serving(says("HTTP/1.1 302 Found", "location: /login")) as address:
        answer = await call(address, headers={"authorization": "Bearer secret"})
    assert answer.status == 302


async def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with serving(says("HTTP/1.1 200 OK", body=b"x")) as address:
        assert (await call(address)).status == 200


async def test_a_long_answer_is_cut() -> None:
    async with serving(says("HTTP/1.1 200 OK", body=b"x" * 100_000)) as address:
        assert (await call(address, max_bytes=1000)).body == b"x" * 1000


async def test_a_server_that_trickles_for_ever_is_left() -> None:
    async def trickle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with serving(trickle) as address:
        answer = await call(address, timeout_s=0.5)
    assert answer.error == "no whole answer within 0.5 s"


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/", "no address", "http://[::1", "ftp://127.0.0.1/"])
async def test_what_does_not_answer_is_an_error_in_words(address: str) -> None:
    answer = await call(address)
    assert answer.status == 0
    assert answer.error
