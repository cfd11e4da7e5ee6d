"""A publisher's outbox: accepted facts that are not yet appended, and the hash chain that they continue."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from hindcast.core.errors import HindcastError
from hindcast.events.codec import encode
from hindcast.events.envelope import Envelope, Record
from hindcast.events.log.port import Expectation


class Decision:
    """A fact whose caller waits for its outcome; it is appended alone, with the facts that follow from it."""

    __slots__ = ("error", "expect", "position", "sent", "withdrawn")

    def __init__(self, expect: Expectation | None) -> None:
        self.expect = expect
        self.position = 0
        self.error: HindcastError | None = None
        self.sent = False
        """Whether the writer has begun to append it; from then on the writer bounds the wait and sets the outcome."""
        self.withdrawn = False


class PendingFact(NamedTuple):
    """An accepted fact, complete except for its place in the chain."""

    number: int
    subject: str
    fields: dict[str, Any]
    payload_bytes: int
    decision: Decision | None
    follows: bool
    """Whether it follows from the decision before it: both are appended, or neither."""
    traceparent: str


class OutboxChain:
    """The hash chain of one incarnation's events. It advances only with events that are known to be stored."""

    def __init__(self, *, run: str, producer: str, incarnation: str, code_rev: str) -> None:
        self._run = run
        self._producer = producer
        self._incarnation = incarnation
        self._code_rev = code_rev
        self._seq = 0
        self._prev_hash = b""

    def seal(self, batch: Sequence[PendingFact]) -> tuple[list[Record], bytes]:
        """Encode facts as the next events of the chain; also return the chain's hash after them."""
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
        """Advance the chain by `count` stored events."""
        self._seq += count
        self._prev_hash = prev_hash
