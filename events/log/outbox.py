"""What a publisher has accepted and not yet appended, and the hash chain that it goes on with."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from hindcast.core.errors import HindcastError
from hindcast.events.codec import encode
from hindcast.events.envelope import Envelope, Record
from hindcast.events.log.port import Expectation


class Decision:
    """A fact that somebody awaits, in an append of its own with what follows from it."""

    __slots__ = ("error", "expect", "position", "sent", "withdrawn")

    def __init__(self, expect: Expectation | None) -> None:
        self.expect = expect
        self.position = 0
        self.error: HindcastError | None = None
        self.sent = False
        """Its turn has come: from now on the writer says what became of it."""
        self.withdrawn = False


class PendingFact(NamedTuple):
    """A fact on its way: everything about it but its place in the chain."""

    number: int
    subject: str
    fields: dict[str, Any]
    payload_bytes: int
    decision: Decision | None
    follows: bool
    """It follows from the decision before it: both are appended, or neither."""
    traceparent: str


class OutboxChain:
    """One incarnation's events, each linked to the one before; it advances for good only with what is known to be stored."""

    def __init__(self, *, run: str, producer: str, incarnation: str, code_rev: str) -> None:
        self._run = run
        self._producer = producer
        self._incarnation = incarnation
        self._code_rev = code_rev
        self._seq = 0
        self._prev_hash = b""

    def seal(self, batch: Sequence[PendingFact]) -> tuple[list[Record], bytes]:
        """Encoded with the chain continued, and the hash that it would come to."""
        records = []
        prev_hash = self._prev_hash
        for offset, item in enumerate(batch):
            envelope = Envelope(
                run=self._run,
                producer=self._producer,
                incarnation=self._incarnation,
                producer_seq=self._seq + offset,
                prev_hash=prev_hash,
                code_rev=self._code_rev,
                **item.fields,
            )
            content = encode(envelope)
            prev_hash = sha256(content).digest()
            records.append(Record(item.subject, content, envelope.id, item.traceparent))
        return records, prev_hash

    def advance(self, count: int, prev_hash: bytes) -> None:
        """So many sealed events are stored."""
        self._seq += count
        self._prev_hash = prev_hash
