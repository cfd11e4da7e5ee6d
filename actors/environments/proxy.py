"""Checks on the network where an episode may go: a small HTTP proxy, one for each browser context.

All traffic of a context passes through it, from any page, frame, worker, redirect or prefetch. Only sites on a literal
loopback address are reached directly (`navigation.bypass_list`). For each connection the proxy checks host and port
against the origins, resolves the name itself, checks the addresses (`may_reach`) and connects to the checked
address, so that a name cannot change its meaning between check and use. A refused connection gets no answer: the page
learns nothing.

Plain HTTP has one request per connection, on both sides, so that no second request can follow unseen. Encrypted traffic
and web sockets use a tunnel (CONNECT).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import structlog

from hindcast.actors.environments.navigation import authorities

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")


def networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Parse networks such as `10.0.0.0/8`, or single addresses. Raises ValueError for anything else."""
    return tuple(ip_network(text) for text in texts)


def may_reach(host: str, address: str, private: tuple[Network, ...]) -> bool:
    """Whether a site named `host` may be reached at `address`, one of the addresses that the name resolves to.

    Any public address is allowed. A private, loopback, link-local or otherwise special address is allowed only where the
    host is that very address, where it is `localhost` and means this machine, or where it lies in one of the `private`
    networks. Any other name with such an address is treated as an attack (DNS rebinding) or a mistake.

    >>> may_reach("shop.example", "93.184.215.14", ())
    True
    >>> may_reach("shop.example", "::ffff:169.254.169.254", ())
    False
    """
    target = _as_ipv4(ip_address(address.split("%")[0]))
    literal = _literal(host)
    if literal is not None:
        return _as_ipv4(literal) == target
    if host == "localhost" or host.endswith(".localhost"):
        return target.is_loopback
    return _public(target) or any(
        target.version == network.version and target in network for network in private
    )


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _as_ipv4(address: Address) -> Address:
    """The IPv4 address that an IPv6 one represents, if it represents one."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _public(address: Address) -> bool:
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback
    )


HEAD_BYTES = 256 * 1024
"""Largest head of a request or response; Chromium's own limit is 256 KiB."""
HEAD_S = 60.0
"""How long a client may take to send its request."""
CONNECT_S = 10.0
"""Time limit for resolving a name and connecting to one of its addresses, in total."""
CONNECTION_BYTES = 256 * 2**20
"""Largest response of one connection: an endless body would fill the browser's memory."""
REFUSALS = 100
"""Refused places that are distinguished and logged; the bound keeps a hostile page from filling the log."""

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Maps host and port to numeric addresses, best first. Raises OSError."""

_DROPPED = (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"upgrade", b"host")
_log = structlog.get_logger(__name__)


async def system_resolver(host: str, port: int) -> list[str]:
    """Resolve with the operating system."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in entries]


class ProxyRequest(NamedTuple):
    """A client's request to the proxy."""

    tunnel: bool
    host: str
    port: int
    head: bytes
    """The head to send to the site; empty for a tunnel."""


class MalformedProxyRequest(ValueError):
    """A head that is no request to a proxy."""


class Unreachable(Exception):
    """An allowed site that could not be connected to, with the reason."""


def parse_request(head: bytes) -> ProxyRequest:
    """Parse a head into a request, rewritten for the site itself. Raises MalformedProxyRequest.

    >>> parse_request(b"CONNECT shop.example:443 HTTP/1.1\\r\\n\\r\\n").port
    443
    """
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    try:
        method, target, version = line.decode("ascii").split(" ")
        site_address = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = site_address.hostname, site_address.port
    except ValueError as error:
        raise MalformedProxyRequest(f"no request to a proxy: {line[:100]!r}") from error
    if not host or not version.startswith("HTTP/1."):
        raise MalformedProxyRequest(f"no request to a proxy: {line[:100]!r}")
    if method == "CONNECT":
        if port is None:
            raise MalformedProxyRequest(f"a tunnel without a port: {target[:100]}")
        return ProxyRequest(True, host, port, b"")
    if site_address.scheme != "http" or "@" in site_address.netloc:
        raise MalformedProxyRequest(f"no plain request: {target[:100]}")
    path = target[len("http://") + len(site_address.netloc) :]
    if not path.startswith("/"):
        path = "/" + path
    kept_fields = [field for field in fields if field.split(b":", 1)[0].strip().lower() not in _DROPPED]
    request_lines = [
        f"{method} {path} {version}".encode(),
        b"Host: " + site_address.netloc.encode(),
        *kept_fields,
    ]
    return ProxyRequest(
        False, host, port or 80, b"\r\n".join([*request_lines, b"Connection: close", b"", b""])
    )


def closing(head: bytes) -> bytes:
    """A response's head with `Connection: close` in place of the site's own connection fields."""
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept_fields = [field for field in fields if field.split(b":", 1)[0].strip().lower() not in _DROPPED]
    return b"\r\n".join([line, *kept_fields, b"Connection: close", b"", b""])


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
        """Refused places outside the origins, as `host:port`, at most `REFUSALS`."""
        self.trouble = ""
        """Why the last connection to an allowed site failed; empty after one that succeeded."""

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
        """The proxy's own address."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Cut every connection and free the port."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # as many as the browser opens; the set keeps them alive, and `close` cancels them
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            request = parse_request(head)
            if (request.host, request.port) not in self._allowed:
                self.refuse(f"{request.host}:{request.port}")
                return
            from_site, to_site = await self._connect(request.host, request.port)
            self.trouble = ""
            try:
                await self._exchange(request, reader, writer, from_site, to_site)
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
            # unlike abort, close delivers what was written
            writer.close()

    def refuse(self, authority: str) -> None:
        """Record a refused place, from here or from the route, and log it once: a site may need it."""
        if authority not in self.refused and len(self.refused) < REFUSALS:
            self.refused.add(authority)
            _log.info("address_refused", address=authority)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a checked address. Raises Unreachable."""
        try:
            async with asyncio.timeout(CONNECT_S):
                addresses = await self._resolver(host, port)
                allowed = [address for address in addresses if may_reach(host, address, self._private)]
                if not allowed:
                    raise Unreachable(
                        f"{host} resolves to {', '.join(addresses[:3]) or 'nothing'}, which is no public address. If the "
                        "site is meant to be there, name the network in actors.private_networks, or the address "
                        "itself as the origin."
                    )
                last_error: OSError | None = None
                for address in allowed:
                    try:
                        return await asyncio.open_connection(address, port, limit=HEAD_BYTES)
                    except OSError as error:
                        last_error = error
        except TimeoutError as error:
            raise Unreachable(f"{host}:{port} did not answer within {CONNECT_S:g} s") from error
        except (OSError, ValueError) as error:
            raise Unreachable(f"{host} could not be resolved: {error}") from error
        raise Unreachable(f"{host}:{port} refused the connection: {last_error}")

    async def _exchange(
        self,
        request: ProxyRequest,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_site: asyncio.StreamReader,
        to_site: asyncio.StreamWriter,
    ) -> None:
        """Carry both directions until one of them ends."""
        if request.tunnel:
            to_client.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            to_site.write(request.head)
        async with asyncio.TaskGroup() as pumps:
            sending = pumps.create_task(_pump(from_client, to_site))
            receiving = pumps.create_task(_answer(from_site, to_client, heads=not request.tunnel))
            await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()
            receiving.cancel()


async def _answer(from_site: asyncio.StreamReader, to_client: asyncio.StreamWriter, *, heads: bool) -> None:
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while heads:
            head = await from_site.readuntil(b"\r\n\r\n")
            # other heads (100, 103) may precede a response
            heads = head[8:10] == b" 1"
            to_client.write(head if heads else closing(head))
            await to_client.drain()
        await _pump(from_site, to_client, limit_bytes=CONNECTION_BYTES)


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, limit_bytes: int | None = None
) -> None:
    """Carry bytes until the source ends or exceeds the limit."""
    brought = 0
    with suppress(OSError):
        while chunk := await source.read(2**16):
            brought += len(chunk)
            if limit_bytes is not None and brought > limit_bytes:
                sink.transport.abort()
                return
            sink.write(chunk)
            await sink.drain()
