"""The proxy of a browser context: what it lets through, what it refuses, and to which addresses it connects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from hindcast.actors.environments import proxy as module
from hindcast.actors.environments.proxy import (
    FilteringProxy,
    MalformedProxyRequest,
    closing,
    may_reach,
    networks,
    parse_request,
)

NAME = "shop.test"
HERE = networks(("127.0.0.1/32",))

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("shop.test", "93.184.215.14"),
        ("shop.test", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"),
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("localhost", "127.0.0.1"),
        ("shop.localhost", "::1"),
        ("inside.test", "10.9.0.1"),
    ],
)
def test_a_site_is_reached_at_public_addresses_and_where_it_was_named_to_be(host: str, address: str) -> None:
    assert may_reach(host, address, networks(("10.9.0.0/16",)))


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("shop.test", "127.0.0.1"),
        ("shop.test", "0.0.0.0"),
        ("shop.test", "10.1.2.3"),
        ("shop.test", "172.16.0.1"),
        ("shop.test", "192.168.1.1"),
        ("shop.test", "100.64.0.1"),
        ("shop.test", "169.254.169.254"),
        ("shop.test", "224.0.0.1"),
        ("shop.test", "255.255.255.255"),
        ("shop.test", "::"),
        ("shop.test", "::1"),
        ("shop.test", "fe80::1%eth0"),
        ("shop.test", "fd00::1"),
        ("shop.test", "ff02::1"),
        ("shop.test", "::ffff:10.1.2.3"),
        ("shop.test", "64:ff9b::a9fe:a9fe"),
        ("shop.test", "2002:7f00:1::"),
        ("10.1.2.3", "10.1.2.4"),
        ("localhost", "10.1.2.3"),
        ("localhost.shop.test", "127.0.0.1"),
    ],
)
def test_a_name_leads_to_no_address_that_is_not_public(host: str, address: str) -> None:
    assert not may_reach(host, address, networks(("10.9.0.0/16", "fd99::/16")))


def test_a_request_to_the_proxy_becomes_one_to_the_site() -> None:
    asked = parse_request(
        b"GET http://Shop.test:81?q=1 HTTP/1.1\r\nHost: other.test\r\nProxy-Connection: keep-alive\r\n"
        b"Connection: x\r\nAccept: */*\r\n\r\n"
    )
    assert (asked.tunnel, asked.host, asked.port) == (False, "shop.test", 81)
    assert asked.head == (
        b"GET /?q=1 HTTP/1.1\r\nHost: Shop.test:81\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )
    assert parse_request(b"GET http://[::1]/a HTTP/1.1\r\n\r\n")[1:3] == ("::1", 80)
    assert closing(b"HTTP/1.1 200 OK\r\nKeep-Alive: x\r\nA: b\r\n\r\n").endswith(
        b"A: b\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://shop.test/ HTTP/1.1\r\n\r\n",
        b"GET http://a@shop.test/ HTTP/1.1\r\n\r\n",
        b"GET http://shop.test:x/ HTTP/1.1\r\n\r\n",
        b"GET http://shop.test/ SSH-2.0\r\n\r\n",
        b"CONNECT shop.test HTTP/1.1\r\n\r\n",
        b"\xff\xfe\r\n\r\n",
    ],
)
def test_what_is_no_request_to_a_proxy_is_not_taken_for_one(head: bytes) -> None:
    with pytest.raises(MalformedProxyRequest):
        parse_request(head)


@asynccontextmanager
async def serving(talk: Talk) -> AsyncIterator[int]:
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n" + head)
    writer.close()


async def ask(proxy: FilteringProxy, request: bytes, *, then: bytes = b"") -> bytes:
    """Everything the proxy answers; `then` is sent once the answer has begun."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rsplit(":", 1)[1]))
    async with asyncio.timeout(60):
        writer.write(request)
        answer = await reader.read(39) if then else b""
        writer.write(then)
        answer += await reader.read()
    writer.close()
    return answer


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_an_allowed_site_answers_and_the_connection_ends() -> None:
    async with (
        serving(page) as port,
        FilteringProxy((f"http://{NAME}:{port}",), private=HERE, resolver=here) as proxy,
    ):
        answer = await ask(proxy, b"GET http://shop.test:%d/a HTTP/1.1\r\n\r\n" % port)
        assert b"103 Early Hints" in answer
        assert b"GET /a HTTP/1.1" in answer
        assert b"keep-alive" not in answer
        assert not proxy.refused


async def test_a_tunnel_carries_what_it_is_given() -> None:
    async with (
        serving(page) as port,
        FilteringProxy((f"https://{NAME}:{port}",), private=HERE, resolver=here) as proxy,
    ):
        answer = await ask(
            proxy, b"CONNECT shop.test:%d HTTP/1.1\r\n\r\n" % port, then=b"GET /secret HTTP/1.1\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"GET /secret" in answer


async def test_another_host_or_port_gets_no_answer_and_is_never_resolved() -> None:
    asked: list[str] = []

    async def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async with serving(page) as port, FilteringProxy(("https://shop.test",), resolver=resolver) as proxy:
        for place in (b"evil.test:443", b"shop.test:80", b"127.0.0.1:%d" % port, b"shop.test.:443"):
            assert await ask(proxy, b"CONNECT " + place + b" HTTP/1.1\r\n\r\n") == b""
            assert await ask(proxy, b"GET http://" + place + b"/ HTTP/1.1\r\n\r\n") == b""
        assert proxy.refused == {"evil.test:443", "shop.test:80", f"127.0.0.1:{port}", "shop.test.:443"}
    assert not asked


async def test_a_name_is_resolved_for_every_connection_and_only_checked_addresses_are_used() -> None:
    met: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(writer.get_extra_info("sockname")[0])
        await page(reader, writer)

    answers = [["127.0.0.2", "127.0.0.1"], ["127.0.0.2"], []]

    async def resolver(host: str, port: int) -> list[str]:
        return answers.pop(0)

    server = await asyncio.start_server(talk, "0.0.0.0", 0)
    port = server.sockets[0].getsockname()[1]
    request = b"GET http://shop.test:%d/ HTTP/1.1\r\n\r\n" % port
    async with FilteringProxy((f"http://{NAME}:{port}",), private=HERE, resolver=resolver) as proxy:
        assert b"200 OK" in await ask(proxy, request)
        assert proxy.trouble == ""
        assert await ask(proxy, request) == b""
        assert "shop.test resolves to 127.0.0.2" in proxy.trouble
        assert "actors.private_networks" in proxy.trouble
        assert await ask(proxy, request) == b""
        assert "resolves to nothing" in proxy.trouble
    server.close()
    assert met == ["127.0.0.1"]


async def test_a_site_that_is_not_there_is_said_so() -> None:
    async with serving(page) as port:
        pass
    origins = (f"http://{NAME}:{port}", "http://gone.test")

    async def resolver(host: str, port: int) -> list[str]:
        if host == "gone.test":
            raise OSError("Name or service not known")
        return ["127.0.0.1"]

    async with FilteringProxy(origins, private=HERE, resolver=resolver) as proxy:
        assert await ask(proxy, b"GET http://shop.test:%d/ HTTP/1.1\r\n\r\n" % port) == b""
        assert "refused the connection" in proxy.trouble
        assert await ask(proxy, b"GET http://gone.test/ HTTP/1.1\r\n\r\n") == b""
        assert "could not be resolved" in proxy.trouble


async def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTION_BYTES", 2**20)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 2**16)
                await writer.drain()
        except OSError:
            writer.close()

    async with (
        serving(talk) as port,
        FilteringProxy((f"http://{NAME}:{port}",), private=HERE, resolver=here) as proxy,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rsplit(":", 1)[1]))
        writer.write(b"GET http://shop.test:%d/ HTTP/1.1\r\n\r\n" % port)
        received = 0
        async with asyncio.timeout(60):
            try:
                while chunk := await reader.read(2**16):
                    received += len(chunk)
            except OSError:
                pass
        writer.close()
        assert 0 < received <= 2**20 + 100


async def test_a_proxy_that_closes_cuts_its_connections() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with serving(talk) as port:
        proxy = await FilteringProxy((f"https://{NAME}:{port}",), private=HERE, resolver=here).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rsplit(":", 1)[1]))
        writer.write(b"CONNECT shop.test:%d HTTP/1.1\r\n\r\n" % port)
        async with asyncio.timeout(60):
            assert await reader.readuntil(b"\r\n\r\n")
            proxy.close()
            assert await reader.read() == b""
        writer.close()
