"""The client protocol: a fast parser for streams of events, and header blocks.

The client library's parser matches regular expressions, copies its buffer and awaits for every message. `StreamParser` takes
whole messages of a receiver directly from the socket's data and leaves everything else to the library. A header block is
`NATS/1.0[ <status>[ <words>]]`, then `Name: value` lines. See `HMSG` in the client protocol of nats-server, and its ADR-4.
"""

from collections.abc import Callable
from typing import Protocol

from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

Receiver = Callable[[bytes, bytes, bytes, bytes], None]
"""Takes subject, reply subject, content and header block of a message, as received."""

_PLAIN, _WITH_HEADERS = b"MSG ", b"HMSG "
_END = b"\r\n"
_FIELDS = (5, 6)
"""Number of fields: command, subject, subscription, perhaps a reply subject, size of the headers, total size."""
_VERSION = b"NATS/1.0 "
_STATUS_END = len(_VERSION) + 3


class ReceivingConnection(Protocol):
    """A connection whose receivers bypass the library."""

    receivers: dict[int, Receiver]
    """Receivers by subscription number."""
    stats: dict[str, int]
    """The library's counts of messages and bytes."""

    def hand(self, receiver: Receiver, subject: bytes, reply: bytes, content: bytes, headers: bytes) -> None:
        """Give one message to its receiver."""
        ...


class StreamParser(Parser):
    """The library's parser with a fast path for receivers."""

    def __init__(self, connection: ReceivingConnection) -> None:
        super().__init__(connection)
        self._connection = connection

    async def parse(self, data: bytes = b"") -> None:
        """Parse data from the socket; called by the library."""
        if not self._connection.receivers or self.state != AWAITING_CONTROL_LINE:
            await super().parse(data)
            return
        if self.buf:
            data = bytes(self.buf) + data
            self.buf.clear()
        end, complete = self._deliver(data)
        if complete:
            await super().parse(data[end:])
        else:
            self.buf.extend(data[end:])

    def _deliver(self, data: bytes) -> tuple[int, bool]:
        """Deliver whole messages; return their end, and whether the library shall parse the rest now."""
        connection, size = self._connection, len(data)
        offset = messages = content_bytes = 0
        complete = True
        while (plain := data.startswith(_PLAIN, offset)) or data.startswith(_WITH_HEADERS, offset):
            line = data.find(_END, offset)
            if line < 0:
                break
            fields = data[offset:line].split()
            if plain:
                fields.insert(-1, b"0")
            if len(fields) not in _FIELDS or not (fields[2] + fields[-2] + fields[-1]).isdigit():
                break
            receiver = connection.receivers.get(int(fields[2]))
            if receiver is None:
                break
            start = line + len(_END)
            middle, stop = start + int(fields[-2]), start + int(fields[-1])
            if stop + len(_END) > size:
                complete = False
                break
            reply = fields[3] if len(fields) == _FIELDS[-1] else b""
            connection.hand(receiver, fields[1], reply, data[middle:stop], data[start:middle])
            messages += 1
            content_bytes += stop - middle
            offset = stop + len(_END)
        connection.stats["in_msgs"] += messages
        connection.stats["in_bytes"] += content_bytes
        return offset, complete


def status_in(block: bytes) -> str:
    """Return the status of a control message, such as `404`; empty for any other message."""
    return block[len(_VERSION) : _STATUS_END].decode("ascii", "replace") if block.startswith(_VERSION) else ""


def parse_headers(block: bytes) -> dict[str, str]:
    """Parse all headers; if a name occurs several times, the last one counts."""
    headers = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers


def format_headers(headers: dict[str, str]) -> bytes:
    """Format the header block of a message to publish.

    Raises:
        ValueError: a name or value contains a line break, which would begin another header.

    """
    text = "NATS/1.0\r\n" + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) + "\r\n"
    lines = len(headers) + 2
    if text.count("\n") != lines or text.count("\r") != lines:
        raise ValueError(f"a header holds a line break: {headers!r}")
    return text.encode()
