"""The client protocol's receiving end, for streams of events.

The client library's parser matches regular expressions, copies what is left of its buffer and awaits once for every
message. `StreamParser` takes whole messages that belong to a receiver straight out of what the socket gave; everything
else, and everything that looks odd, it leaves to the library. See `HMSG` in the client protocol of nats-server.
"""

from collections.abc import Callable
from typing import Protocol

from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

Receiver = Callable[[bytes, bytes, bytes, bytes], None]
"""Takes subject, reply subject, content and header block of a message, as they came over the wire."""

_BEGIN = b"HMSG "
_END = b"\r\n"
_FIELDS = 5
"""Subject, subscription, reply subject, size of the headers, size in all: as a stream delivers."""


class ReceivingConnection(Protocol):
    """A connection whose receivers take messages past the library."""

    receivers: dict[int, Receiver]
    """By number of the subscription."""
    stats: dict[str, int]
    """The library's counts of messages and bytes."""

    def hand(self, receiver: Receiver, subject: bytes, reply: bytes, content: bytes, headers: bytes) -> None:
        """Give one message to its receiver."""
        ...


class StreamParser(Parser):
    """The library's parser with a short way for receivers."""

    def __init__(self, connection: ReceivingConnection) -> None:
        super().__init__(connection)
        self._connection = connection

    async def parse(self, data: bytes = b"") -> None:
        """Called by the library with whatever the socket gave."""
        if not self._connection.receivers or self.state != AWAITING_CONTROL_LINE:
            await super().parse(data)
            return
        if self.buf:
            data = bytes(self.buf) + data
            self.buf.clear()
        at, whole = self._deliver(data)
        if whole:
            await super().parse(data[at:])
        else:
            self.buf.extend(data[at:])

    def _deliver(self, data: bytes) -> tuple[int, bool]:
        """Hand on whole messages; where they end, and whether the library is to look at the rest now."""
        connection, size = self._connection, len(data)
        at = messages = content_bytes = 0
        whole = True
        while data.startswith(_BEGIN, at):
            line = data.find(_END, at)
            if line < 0:
                break
            fields = data[at + len(_BEGIN) : line].split()
            if len(fields) != _FIELDS or not (fields[1] + fields[3] + fields[4]).isdigit():
                break
            receiver = connection.receivers.get(int(fields[1]))
            if receiver is None:
                break
            start = line + len(_END)
            middle, stop = start + int(fields[3]), start + int(fields[4])
            if stop + len(_END) > size:
                whole = False
                break
            connection.hand(receiver, fields[0], fields[2], data[middle:stop], data[start:middle])
            messages += 1
            content_bytes += stop - middle
            at = stop + len(_END)
        connection.stats["in_msgs"] += messages
        connection.stats["in_bytes"] += content_bytes
        return at, whole
