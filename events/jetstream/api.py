"""JetStream's request protocol: the few calls that the adapters need, each bounded in time.

Requests are JSON under `$JS.log.API`, the prefix of the log's API in a role's account (`events.jetstream.accounts`).
`DIRECT.GET` answers with the stored messages themselves. See the JetStream wire API reference of nats-server and its ADR-31
(direct get) and ADR-50 (atomic batches).
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from hindcast.core.errors import BrokerUnreachable, HindcastError
from hindcast.events.envelope import UNREAD, Stored
from hindcast.events.jetstream.accounts import ROLE_API
from hindcast.events.jetstream.connection import Connection, RequestTimeout
from hindcast.events.jetstream.wire import parse_headers, status_in
from hindcast.events.subjects import STREAM, matches, stream_name

T = TypeVar("T")
NANOSECONDS = 1_000_000_000
CALL_S = 5.0
"""Time limit of one request."""
JOIN_S = 15.0
"""Time limit of the answers that a machine needs before it joins a run."""
PAUSE_S = 0.25
"""Pause between attempts while the broker does not answer."""
READ_BYTES = 8 * 1024 * 1024
"""Most bytes in one answer to a ranged read, well below the client's pending limit."""
TRACEPARENT = "traceparent"
"""Header of the W3C trace context."""
STREAM_NOT_FOUND = 10059
STREAM_OFFLINE = (10118, 10194)
"""The server holds the stream but does not serve it, without and with a reason."""
UNAVAILABLE = 503
"""JetStream is starting, or has no leader: try again."""
TOO_MANY = "413"
"""Status if the answer would exceed the broker's limit."""
LOOK_BACK_EVENTS = 500
NO_ROOM = 10047
"""The stream's size limit is more than the broker still allows."""
ADVICE = "Is its disk full, or its JetStream limited?"
ADVICE_BY_CODE = {
    NO_ROOM: (
        "The log's size limit (log.max_bytes) is larger than what the broker has left for streams. All streams together may have "
        "its max_file_store or, without that setting, three quarters of the disk that was free when it started. Lower "
        "log.max_bytes, or raise max_file_store."
    )
}
"""What to do next, by the code of JetStream's error; `ADVICE` for all others."""


class ApiError(HindcastError):
    """JetStream refused a request; a repetition would not help."""

    def __init__(self, request: str, code: int, text: str) -> None:
        super().__init__(
            f"the broker refused {request}: {text} (JetStream error {code}). {ADVICE_BY_CODE.get(code, ADVICE)}"
        )
        self.code = code
        self.text = text
        """The broker's description."""


class TooManySubjects(HindcastError):
    """A wildcard covers more subjects than the broker returns last events for at once."""


class DeliveryNumbers(NamedTuple):
    """Numbers in the reply subject of a delivered message."""

    tries: int
    position: int


def delivery_numbers(reply: str) -> DeliveryNumbers:
    """Parse `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<tries>.<position>.…`."""
    tokens = reply.split(".")
    start = 4 if len(tokens) == 9 else 6
    return DeliveryNumbers(int(tokens[start]), int(tokens[start + 1]))


def status_of(message: Msg) -> str | None:
    """Return the status of a control message; None for a stored one."""
    headers = message.headers
    if headers is None or message.data:
        return None
    return headers.get("Status")


def _stored(content: bytes, headers: dict[str, str]) -> Stored:
    """Convert a message from `DIRECT.GET`."""
    return Stored(
        int(headers["Nats-Sequence"]),
        headers["Nats-Subject"],
        content,
        headers.get("Nats-Msg-Id", ""),
        headers.get(TRACEPARENT, ""),
    )


class _Answers:
    """Collects the messages and final status of a ranged read."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes]] = []
        """Content and header block of each message."""
        self.status = ""
        self.end = b""
        """Header block of the final status."""
        self.ended = asyncio.Event()

    def receive(self, _subject: bytes, _reply: bytes, content: bytes, headers: bytes) -> None:
        """Take one message; see `Receiver`."""
        status = "" if content else status_in(headers)
        if status:
            self.status, self.end = status, headers
            self.ended.set()
        else:
            self.messages.append((content, headers))

    @property
    def stored(self) -> list[Stored]:
        """The messages as stored events; they need their headers."""
        return [_stored(content, parse_headers(headers)) for content, headers in self.messages]


class StreamApi:
    """JetStream calls for one stream."""

    def __init__(self, connection: Connection, stream: str, *, bound_s: float) -> None:
        """`stream` is empty for calls without one. `bound_s`: how long calls are repeated if the broker does not answer."""
        self.connection = connection
        self.prefix = ROLE_API
        self.stream = stream
        self.bound_s = bound_s

    async def once(
        self, verb: str, body: dict[str, Any] | None = None, *, suffix: str = ""
    ) -> dict[str, Any]:
        """Request `<prefix>.<verb>.<stream><suffix>` once.

        Raises:
            ApiError, RequestTimeout, BrokerDenied.

        """
        subject = f"{self.prefix}.{verb}.{self.stream}{suffix}".rstrip(".")
        content = b"" if body is None else json.dumps(body).encode()
        reply = await self.connection.ask(subject, content, timeout_s=CALL_S)
        answer: dict[str, Any] = json.loads(reply.data)
        if "error" in answer:
            error = answer["error"]
            text = str(error.get("description", ""))
            if error.get("code") == UNAVAILABLE:
                raise RequestTimeout(text)
            raise ApiError(f"{verb} for {self.stream}", int(error.get("err_code", 0)), text)
        return answer

    async def why_not_loaded(self) -> str:
        """Return the broker's reason for not serving the stream; empty if it serves it."""
        try:
            await self.call("STREAM.INFO")
        except ApiError as error:
            if error.code not in (STREAM_NOT_FOUND, *STREAM_OFFLINE):
                raise
            return error.text
        return ""

    async def call(
        self, verb: str, body: dict[str, Any] | None = None, *, suffix: str = ""
    ) -> dict[str, Any]:
        """Request like `once`, repeated until `bound_s` has passed.

        Raises:
            ApiError, BrokerDenied, BrokerUnreachable.

        """
        return await self._repeated(lambda: self.once(verb, body, suffix=suffix))

    async def first_under(self, request: dict[str, Any]) -> Stored | None:
        """Get one stored message by `seq` or `last_by_subj`; None if there is none."""
        subject, content = f"{self.prefix}.DIRECT.GET.{self.stream}", json.dumps(request).encode()
        message = await self._repeated(lambda: self.connection.ask(subject, content, timeout_s=CALL_S))
        headers, status = message.headers or {}, status_of(message)
        if status is None:
            return _stored(message.data, headers)
        if status == "404":
            return None
        raise ApiError(f"DIRECT.GET for {self.stream}", int(status), str(headers.get("Description", "")))

    async def ranged(self, *, start: int, limit: int, subject: str | None = None) -> list[Stored]:
        """Read up to `limit` stored messages from position `start` on, in order, of one subject if given."""
        request: dict[str, Any] = {"seq": start, "batch": limit, "max_bytes": READ_BYTES}
        if subject is not None:
            request["next_by_subj"] = subject
        return await self._several(request)

    async def ranged_once(self, *, start: int, limit: int, headers: bool) -> list[Stored]:
        """Read like `ranged`, once; without `headers` it is half the work for broker and client.

        The broker states the last position; if that shows a gap, the range is read again with headers.

        Raises:
            RequestTimeout, BrokerDenied.

        """
        request: dict[str, Any] = {"seq": start, "batch": limit, "max_bytes": READ_BYTES}
        if not headers:
            request["no_hdr"] = True
        answers = await self._several_once(request)
        if headers or not answers.messages:
            return answers.stored
        last = parse_headers(answers.end).get("Nats-Last-Sequence", "")
        if last != str(start + len(answers.messages) - 1):
            return await self.ranged_once(start=start, limit=limit, headers=True)
        return [
            Stored(position, UNREAD, content, UNREAD)
            for position, (content, _) in enumerate(answers.messages, start)
        ]

    async def last_under_each(self, subject: str) -> list[Stored]:
        """Get the last stored message of every subject under a wildcard."""
        return await self._several({"multi_last": [subject]})

    async def last_up_to(self, subject: str, *, until: int) -> Stored | None:
        """Get the last stored message under a subject or wildcard up to a position that is not the stream's end."""
        if until < 1:
            return None  # to the broker 0 means no bound
        try:
            candidates = await self._several({"multi_last": [subject], "up_to_seq": until})
        except TooManySubjects:
            return await self._look_back(subject, until=until)
        return max(candidates, key=lambda stored: stored.position, default=None)

    async def _look_back(self, subject: str, *, until: int) -> Stored | None:
        while until > 0:
            start = max(1, until - LOOK_BACK_EVENTS + 1)
            events: list[Stored] = []
            position = start - 1
            while position < until and (
                batch := await self.ranged(start=position + 1, limit=until - position)
            ):
                events += batch
                position = batch[-1].position
            for stored in reversed(events):
                if stored.position <= until and matches(subject, stored.subject):
                    return stored
            until = start - 1
        return None

    async def _several(self, request: dict[str, Any]) -> list[Stored]:
        return (await self._repeated(lambda: self._several_once(request))).stored

    async def _several_once(self, request: dict[str, Any]) -> _Answers:
        connection = self.connection
        answers = _Answers()
        try:
            inbox = connection.new_inbox()
            async with connection.receiving(inbox, answers.receive), connection.exchange(CALL_S):
                content = json.dumps(request).encode()
                await connection.publish(f"{self.prefix}.DIRECT.GET.{self.stream}", content, reply=inbox)
                await answers.ended.wait()
        except (NatsError, TimeoutError) as error:
            raise RequestTimeout(str(error) or type(error).__name__) from error
        if answers.status == TOO_MANY:
            raise TooManySubjects(
                f"more subjects of {self.stream} were asked for than the broker gives at once"
            )
        if answers.status not in ("204", "404"):
            raise RequestTimeout(f"direct get was answered with status {answers.status}")
        return answers

    async def _repeated(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt that has no answer, until `bound_s` has passed."""
        patience = self.patience()
        while True:
            try:
                return await attempt()
            except RequestTimeout as error:
                await self.pause(patience, error)

    def patience(self) -> Callable[[], bool]:
        """Start the time limit of a call; the returned function says whether the call may still be repeated."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.bound_s
        return lambda: loop.time() < deadline

    async def pause(self, patience: Callable[[], bool], error: RequestTimeout) -> None:
        """Wait before another attempt.

        Raises:
            BrokerUnreachable: the time limit has passed.

        """
        if not patience():
            raise BrokerUnreachable(
                f"the broker did not answer for {self.bound_s:g} s ({error}). Start it again: everything acknowledged is "
                "kept, and this process continues where the log ends."
            ) from error
        await asyncio.sleep(PAUSE_S)


async def runs_on(connection: Connection) -> list[str]:
    """List the names of the runs whose logs a broker holds, sorted.

    Raises:
        BrokerUnreachable, BrokerDenied.

    """
    api = StreamApi(connection, "", bound_s=JOIN_S)
    names: list[str] = []
    while True:
        answer = await api.call("STREAM.NAMES", {"offset": len(names)})
        names += answer["streams"] or []
        if not answer["streams"] or len(names) >= int(answer["total"]):
            return sorted(name.removeprefix(STREAM) for name in names if name.startswith(STREAM))


async def clock_ahead_s(connection: Connection, run: str, *, clock: Callable[[], float] = time.time) -> float:
    """Measure by how many seconds this machine's clock is ahead of the broker's; negative if behind.

    The error is at most half the time of one answer.

    Raises:
        BrokerUnreachable: the broker does not answer, or does not report its time (nats-server before 2.10).

    """
    api = StreamApi(connection, stream_name(run), bound_s=JOIN_S)
    sent_at = clock()
    answer = await api.call("STREAM.INFO")
    received_at = clock()
    if "ts" not in answer:
        raise BrokerUnreachable("the broker does not say what time it is: nats-server 2.10 and later do")
    broker_time = datetime.fromisoformat(answer["ts"]).timestamp()
    return (sent_at + received_at) / 2 - broker_time
