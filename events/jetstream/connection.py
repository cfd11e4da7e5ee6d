"""Connection of a role to the broker. Waits are bounded, it reconnects forever, and a denial is fatal.

The client library reports a denied publish only to a callback, and the request itself times out. Here the callback wakes
every bounded wait of the connection, which then raises `BrokerDenied`.

`Connection` overrides private methods of the library, because its public API can neither pass on a lost cancellation nor
deliver messages without an object each. So pyproject.toml pins the version whose methods were read.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.errors import (
    BadSubjectError,
    ConnectionClosedError,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferLimitError,
)
from nats.errors import Error as NatsError

from hindcast.core.errors import BrokerDenied, BrokerUnreachable
from hindcast.events.jetstream.accounts import inbox_prefix
from hindcast.events.jetstream.addresses import is_encrypted, servers_in, tls_context
from hindcast.events.jetstream.broker import secret_path
from hindcast.events.jetstream.wire import Receiver, StreamParser

RECONNECT_WAIT_S = 0.25
PING_INTERVAL_S = 10
ONE_CONNECT_S = 5
"""Time limit of one attempt to connect."""
CLOSED_S = 1.0
"""Time limit for closing a socket."""

Outgoing = tuple[str, bytes, bytes]
"""Subject, header block and content of a message to publish."""

_log = structlog.get_logger(__name__)


class RequestTimeout(Exception):
    """A request had no answer within its time limit: its outcome is unknown."""


@contextmanager
def heeding_cancellation() -> Iterator[None]:
    """Raise cancellations that the client library loses; otherwise its caller would never end.

    Before Python 3.12, `asyncio.wait_for` drops a cancellation that arrives together with its result or failure, which is
    frequent in a busy event loop. Other places of the library catch the cancellation and continue.
    """
    task = asyncio.current_task()
    cancellations = task.cancelling() if task is not None else 0

    def is_cancelled() -> bool:
        return task is not None and task.cancelling() > cancellations

    try:
        yield
    except Exception as failure:
        if is_cancelled():
            raise asyncio.CancelledError from failure
        raise
    if is_cancelled():
        raise asyncio.CancelledError


class _Transport(TcpTransport):
    """The library's transport, which closes every socket that it opened, in bounded time.

    The library forgets the socket of a failed attempt to reconnect, and waits forever for one after a failed TLS handshake.
    """

    def __bool__(self) -> bool:
        """Be true also before it is connected; otherwise the library would replace it by its own."""
        return True

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        """Connect like the library, after closing the socket of the attempt before."""
        self.close()  # type: ignore[no-untyped-call]
        await super().connect(uri, buffer_size, connect_timeout)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, with a time limit."""
        with heeding_cancellation(), suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(CLOSED_S):
                await super().wait_closed()  # type: ignore[no-untyped-call]


class Connection(Client):
    """A role's connection to the broker."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role
        self.denied: BrokerDenied | None = None
        """Set once the broker has refused something; every bounded wait raises it from then on."""
        self._waits: set[asyncio.Timeout] = set()
        self._exchanges: set[asyncio.Timeout] = set()
        self.receivers: dict[int, Receiver] = {}
        """Receivers by subscription."""
        self._ps = StreamParser(self)

    @asynccontextmanager
    async def receiving(self, subject: str, receiver: Receiver) -> AsyncIterator[None]:
        """Pass every message under a subject directly to `receiver`, in order.

        For streams of events: for each message the library would build an object, parse headers, queue it and wake a task,
        which takes longer than decoding and checking it.
        """
        subscription = await self.subscribe(subject)
        self.receivers[subscription._id] = receiver
        try:
            yield
        finally:
            del self.receivers[subscription._id]
            if not (self.is_closed or self.is_draining):
                await subscription.unsubscribe()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        """Deliver messages that `StreamParser` left to the library."""
        receiver = self.receivers.get(sid)
        if receiver is None:
            await super()._process_msg(sid, subject, reply, data, headers)  # type: ignore[arg-type]
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        self.hand(receiver, subject, reply, data, headers or b"")

    def hand(self, receiver: Receiver, subject: bytes, reply: bytes, content: bytes, headers: bytes) -> None:
        """Call a receiver. Its exceptions must not end the library's reading task, which would stop all messages."""
        try:
            receiver(subject, reply, content, headers)
        except Exception as error:
            _log.error("a message could not be taken", role=self.role, subject=subject, error=str(error))

    @asynccontextmanager
    async def bounded(self, timeout_s: float) -> AsyncIterator[asyncio.Timeout]:
        """Bound a wait by `timeout_s`.

        Raises:
            TimeoutError: the time limit has passed.
            BrokerDenied: the broker refused something of this connection.

        """
        if self.denied is not None:
            raise self.denied
        timeout = asyncio.timeout(timeout_s)
        self._waits.add(timeout)
        try:
            async with timeout:
                yield timeout
        except TimeoutError:
            if self.denied is not None:
                raise self.denied from None
            raise
        finally:
            self._waits.discard(timeout)

    @asynccontextmanager
    async def exchange(self, timeout_s: float) -> AsyncIterator[None]:
        """Bound a wait like `bounded`, and end it as soon as the connection is lost, because no answer will come."""
        async with self.bounded(timeout_s) as timeout:
            self._exchanges.add(timeout)
            try:
                yield
            finally:
                self._exchanges.discard(timeout)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """Flush like the library, which loses a cancellation during its wait."""
        with heeding_cancellation():
            return await super()._flush_pending(force_flush)

    async def _connect_to_server(self, s: Any) -> None:
        """Connect like the library, whose caller retries after any failure, also a cancellation."""
        if not self._transport and s.uri.scheme in ("nats", "tls"):
            self._transport = _Transport()  # type: ignore[no-untyped-call]
        with heeding_cancellation():
            await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        """Greet like the library, which retries forever if a cancellation arrives together with a failure."""
        with heeding_cancellation():
            await super()._process_connect_init()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Close like the library, which does so in every attempt to connect."""
        with heeding_cancellation():
            await super()._close(status, do_cbs)

    def _connect_command(self) -> Any:
        """Refuse an unencrypted server at a tls:// address, to which the library would send the password in the clear."""
        server = self._current_server
        if server is not None and is_encrypted(server.uri.geturl()) and not self._is_encrypted():
            self.deny(f"{server.uri.netloc} does not encrypt, though its address is {server.uri.scheme}://")
            raise NatsError("no TLS")
        return super()._connect_command()

    def _is_encrypted(self) -> bool:
        writer = getattr(self._transport, "_io_writer", None)
        return writer is None or writer.get_extra_info("ssl_object") is not None

    async def publish_all(self, messages: Sequence[Outgoing]) -> None:
        """Publish several messages as one write, in order; they are flushed with the next message.

        Raises:
            NatsError: as in the library's `publish`; nothing was sent.

        """
        if self.is_closed:
            raise ConnectionClosedError
        if not self.is_connected:
            raise OutboundBufferLimitError
        parts: list[bytes] = []
        size = 0
        for subject, block, content in messages:
            if not subject or not subject.isprintable() or " " in subject:
                raise BadSubjectError
            if len(content) > self.max_payload:
                raise MaxPayloadError
            size += len(content)
            parts += (
                f"HPUB {subject} {len(block)} {len(block) + len(content)}\r\n".encode(),
                block,
                content,
                b"\r\n",
            )
        self.stats["out_msgs"] += len(messages)
        self.stats["out_bytes"] += size
        await self._send_command(b"".join(parts))

    async def ask(
        self, subject: str, content: bytes = b"", *, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """Send a request and return its reply.

        Raises:
            RequestTimeout: no reply in time, disconnected, or no responders.
            BrokerDenied: this role lacks the permission.

        """
        try:
            async with self.exchange(timeout_s):
                with heeding_cancellation():
                    return await self.request(subject, content, timeout=timeout_s + 1, headers=headers)
        except NoRespondersError as error:
            raise RequestTimeout(
                f"nobody answers at {subject}: JetStream is not up, or has no such stream"
            ) from error
        except TimeoutError as error:
            raise RequestTimeout(f"no reply within {timeout_s:g} s, or the connection was lost") from error
        except NatsError as error:
            raise RequestTimeout(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Close for good, also in states in which the library's own close fails or leaves the socket open."""
        if not self.is_connected:  # the library would try to flush
            self._pending.clear()
            self._pending_data_size = 0
        with heeding_cancellation():
            await super().close()
            if self._transport:  # the library counts an interrupted attempt to connect as closed too early
                self._transport.close()  # type: ignore[no-untyped-call]
                with suppress(OSError):
                    await self._transport.wait_closed()  # type: ignore[no-untyped-call]

    async def on_error(self, error: Exception) -> None:
        """Handle errors of no particular call; called by the client library."""
        text = str(error)
        lowered = text.lower()
        if "permissions violation" in lowered or "authorization violation" in lowered:
            self.deny(text.removeprefix("nats: "))
        elif isinstance(error, ssl.SSLCertVerificationError):
            self.deny(f"its certificate is not one that we believe: {error.verify_message} (secrets/ca.pem)")
        elif not self.is_closed:
            _log.debug("broker connection", role=self.role, error=text or type(error).__name__)

    def deny(self, text: str) -> None:
        """Make every bounded wait of this connection raise `BrokerDenied`."""
        self.denied = BrokerDenied(
            f"the broker refused role {self.role!r}: {text}. This process acts outside its role, or its secret is not the "
            "broker's (the broker makes both at its start)."
        )
        _expire(self._waits)

    async def on_disconnect(self) -> None:
        """End all exchanges; called by the client library when the connection is lost."""
        _expire(self._exchanges)
        if not self.is_closed:
            _log.warning("broker connection lost, reconnecting", role=self.role)

    async def on_reconnect(self) -> None:
        """Log it; called by the client library when it is connected and subscribed again."""
        _log.info("broker connection is back", role=self.role)


def _expire(timeouts: set[asyncio.Timeout]) -> None:
    for timeout in timeouts:
        if timeout.when() is not None and not timeout.expired():
            timeout.reschedule(asyncio.get_running_loop().time())


async def connect(
    url: str, *, role: str, home: Path, name: str | None = None, timeout_s: float = 30.0
) -> Connection:
    """Connect as a role with the password in `home/secrets/<role>`; `url` may name several servers of a cluster.

    Raises:
        BrokerUnreachable: no answer within `timeout_s`.
        BrokerDenied: the password is missing, readable by others, or refused.
        SettingsError: an address contains a password, or leaves this machine unencrypted.

    """
    servers = servers_in(url)
    password = _password(secret_path(home, role), role)
    tls = tls_context(home) if is_encrypted(servers[0]) else None
    connection = Connection(role)

    try:
        async with connection.bounded(timeout_s):
            with heeding_cancellation():
                await connection.connect(
                    servers,
                    name=name or role,
                    user=role,
                    password=password,
                    inbox_prefix=inbox_prefix(role),
                    error_cb=connection.on_error,
                    disconnected_cb=connection.on_disconnect,
                    reconnected_cb=connection.on_reconnect,
                    connect_timeout=ONE_CONNECT_S,
                    reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]
                    max_reconnect_attempts=-1,
                    ping_interval=PING_INTERVAL_S,
                    pending_size=-1,
                    tls=tls,
                )
    except TimeoutError:
        reason = str(connection.last_error or "no answer")
        await connection.close()
        raise BrokerUnreachable(
            f"the broker at {url} does not answer ({reason}), waited {timeout_s:g} s (log.connect_timeout_s). "
            "Is it running? Where log.url is empty `hindcast start` starts one; `hindcast doctor` looks."
        ) from None
    except (BrokerDenied, asyncio.CancelledError):
        await connection.close()
        raise
    return connection


def _password(path: Path, role: str) -> str:
    try:
        mode = path.stat().st_mode
        password = path.read_text().strip()
    except OSError as error:
        raise BrokerDenied(
            f"role {role!r} has no secret at {path} ({error.strerror}). The broker makes it at its first start; for a "
            "broker of your own, put the role's password there, readable by you alone."
        ) from error
    if mode & 0o077:
        raise BrokerDenied(f"the secret at {path} can be read by others. Run: chmod 600 {path}")
    return password
