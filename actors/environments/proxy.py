"""The network's own check of where an episode may go: a small HTTP proxy, one for each browser context.

Everything that Chromium sends for a context comes through here, whatever page, frame, worker, redirect or prefetch it
stems from; only sites on a literal loopback address are reached without it (`navigation.bypass_list`). Of each
connection the proxy checks host and port against the origins, resolves the name itself, checks the addresses
(`addresses.may_reach`) and connects to the very address that it has checked, so that a name cannot mean one machine
when it is checked and another when it is used. What is refused gets no answer at all: the page learns nothing.

Plain HTTP has one request on each connection, to both sides, so that no second request can follow unseen. What is
encrypted goes through a tunnel (CONNECT). A web socket is a tunnel, too.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import structlog

from hindcast.actors.environments.addresses import Network, may_reach
from hindcast.actors.environments.navigation import authorities

HEAD_BYTES = 256 * 1024
"""Head of a request or response; Chromium itself gives up at 256 KiB."""
HEAD_S = 60.0
"""How long a client may take to say what it wants."""
CONNECT_S = 10.0
"""Resolving a name and connecting to one of its addresses, altogether."""
CONNECTION_BYTES = 256 * 2**20
"""What one connection may bring: beyond that it is an endless body, which would fill the browser's memory."""
REFUSALS = 100
"""Refused places told apart and logged; a page that tries more of them is up to no good and fills no log."""

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Host and port to numeric addresses, best first. Raises OSError."""

_DROPPED = (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"upgrade", b"host")
_log = structlog.get_logger(__name__)


async def system_resolver(host: str, port: int) -> list[str]:
    """Asks what the operating system asks."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class ProxyRequest(NamedTuple):
    """What a client wants of the proxy."""

    tunnel: bool
    host: str
    port: int
    head: bytes
    """What goes on to the site; empty for a tunnel."""


class MalformedProxyRequest(ValueError):
    """A head that is no request to a proxy."""


class Unreachable(Exception):
    """A site that is allowed and could not be connected to, in words."""


def parse_request(head: bytes) -> ProxyRequest:
    """The request in a head, rewritten for the site itself. Raises NotAsked.

    >>> parse_request(b"CONNECT shop.example:443 HTTP/1.1\\r\\n\\r\\n").port
    443
    """
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    try:
        method, target, version = line.decode("ascii").split(" ")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise MalformedProxyRequest(f"no request to a proxy: {line[:100]!r}") from error
    if not host or not version.startswith("HTTP/1."):
        raise MalformedProxyRequest(f"no request to a proxy: {line[:100]!r}")
    if method == "CONNECT":
        if port is None:
            raise MalformedProxyRequest(f"a tunnel without a port: {target[:100]}")
        return ProxyRequest(True, host, port, b"")
    if parts.scheme != "http" or "@" in parts.netloc:
        raise MalformedProxyRequest(f"no plain request: {target[:100]}")
    path = target[len("http://") + len(parts.netloc) :]
    if not path.startswith("/"):
        path = "/" + path
    kept = [field for field in fields if field.split(b":", 1)[0].strip().lower() not in _DROPPED]
    sent = [f"{method} {path} {version}".encode(), b"Host: " + parts.netloc.encode(), *kept]
    return ProxyRequest(False, host, port or 80, b"\r\n".join([*sent, b"Connection: close", b"", b""]))


def closing(head: bytes) -> bytes:
    """A response's head, which says that the connection ends with the response, whatever the site says."""
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [field for field in fields if field.split(b":", 1)[0].strip().lower() not in _DROPPED]
    return b"\r\n".join([line, *kept, b"Connection: close", b"", b""])


class FilteringProxy:
    """A proxy on a loopback port of its own, from `start` to `close`."""

    def __init__(
        self,
        origins: tuple[str, ...],
        *,
        private: tuple[Network, ...] = (),
        resolver: Resolver = system_resolver,
    ) -> None:
        self._allowed = authorities(origins)
        self._private = private
        self._resolver = resolver
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.refused: set[str] = set()
        """What was asked for and lies outside the origins, as `host:port`, at most `REFUSALS`."""
        self.trouble = ""
        """Why the last connection to an allowed site came to nothing; empty once one did not."""

    async def start(self) -> Self:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES)
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Cut every connection and free the port."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # as many as the browser opens; the set keeps them alive, and close ends them
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            asked = parse_request(head)
            if (asked.host, asked.port) not in self._allowed:
                self.refuse(f"{asked.host}:{asked.port}")
                return
            from_site, to_site = await self._connect(asked.host, asked.port)
            self.trouble = ""
            try:
                await self._exchange(asked, reader, writer, from_site, to_site)
            finally:
                to_site.transport.abort()
        except MalformedProxyRequest as error:
            _log.debug("proxy_misused", reason=str(error))
        except Unreachable as error:
            self.trouble = str(error)
            _log.debug("site_unreachable", reason=self.trouble)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _log.debug("proxy_connection_ended", reason=str(error))
        finally:
            # what was written stays readable on the other side: close, unless there is nothing to be said
            writer.close()

    def refuse(self, place: str) -> None:
        """Take note of a place that was refused, here or by the route, and say so once: a site may need it."""
        if place not in self.refused and len(self.refused) < REFUSALS:
            self.refused.add(place)
            _log.info("address_refused", address=place)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to an address that was checked. Raises Unreachable."""
        try:
            async with asyncio.timeout(CONNECT_S):
                found = await self._resolver(host, port)
                allowed = [address for address in found if may_reach(host, address, self._private)]
                if not allowed:
                    raise Unreachable(
                        f"{host} resolves to {', '.join(found[:3]) or 'nothing'}, which is no public address. If the "
                        "site is meant to be there, name the network in actors.private_networks, or the address "
                        "itself as the origin."
                    )
                last: OSError | None = None
                for address in allowed:
                    try:
                        return await asyncio.open_connection(address, port, limit=HEAD_BYTES)
                    except OSError as error:
                        last = error
        except TimeoutError as error:
            raise Unreachable(f"{host}:{port} did not answer within {CONNECT_S:g} s") from error
        except (OSError, ValueError) as error:
            raise Unreachable(f"{host} could not be resolved: {error}") from error
        raise Unreachable(f"{host}:{port} refused the connection: {last}")

    async def _exchange(
        self,
        asked: ProxyRequest,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_site: asyncio.StreamReader,
        to_site: asyncio.StreamWriter,
    ) -> None:
        """Both directions, until one of them ends."""
        if asked.tunnel:
            to_client.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            to_site.write(asked.head)
        async with asyncio.TaskGroup() as pumps:
            sending = pumps.create_task(_pump(from_client, to_site))
            receiving = pumps.create_task(_answer(from_site, to_client, heads=not asked.tunnel))
            await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()
            receiving.cancel()


async def _answer(from_site: asyncio.StreamReader, to_client: asyncio.StreamWriter, *, heads: bool) -> None:
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while heads:
            head = await from_site.readuntil(b"\r\n\r\n")
            # a response may be announced by others (100, 103), each a head of its own
            heads = head[8:10] == b" 1"
            to_client.write(head if heads else closing(head))
            await to_client.drain()
        await _pump(from_site, to_client, limit_bytes=CONNECTION_BYTES)


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, limit_bytes: int | None = None
) -> None:
    """Carry bytes until the source ends, or has brought more than it may."""
    brought = 0
    with suppress(OSError):
        while chunk := await source.read(2**16):
            brought += len(chunk)
            if limit_bytes is not None and brought > limit_bytes:
                sink.transport.abort()
                return
            sink.write(chunk)
            await sink.drain()
