"""Hash chains, which detect loss, reordering and tampering without trusting the broker.

Every event names the sha256 of its producer's previous event. `RollingDigest` folds the whole log into one value.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from hindcast.core.errors import CorruptEvent
from hindcast.events.envelope import Envelope, Recorded


class ChainLink(NamedTuple):
    """State of a producer incarnation's chain: number, sha256 and position of its last event."""

    seq: int
    digest: bytes
    position: int


class ChainChecker:
    """Checks every producer incarnation's chain through the log."""

    def __init__(self, *, after: int = 0, links: Mapping[str, ChainLink] | None = None) -> None:
        """`after`: position after which reading starts; `links`: state of all chains there.

        From 0, or with `links`, every new chain must begin with its first event; otherwise it may have begun before.
        """
        self._whole = after == 0 or links is not None
        self.links: dict[str, ChainLink] = dict(links or {})
        """State of each chain, by incarnation."""

    def check(self, recorded: Recorded) -> None:
        """Check that an event continues its producer's chain.

        Raises:
            CorruptEvent: the message names the position of changed bytes, or the gap.

        """
        self.link(recorded.position, recorded.envelope, recorded.digest)

    def link(self, position: int, envelope: Envelope, digest: bytes) -> None:
        """Check like `check`, for an event whose payload is not decoded."""
        last = self.links.get(envelope.incarnation)
        seq = envelope.producer_seq
        if last is None:
            if self._whole and seq != 0:
                raise CorruptEvent(
                    f"events are missing: the first of {envelope.incarnation} in the log, at position {position}, is its "
                    f"number {seq}, not 0. The log was cut or its beginning replaced."
                )
            if seq == 0 and envelope.prev_hash != b"":
                raise CorruptEvent(
                    f"position {position} is damaged: number 0 of {envelope.incarnation} names a predecessor."
                )
        elif seq != last.seq + 1:
            problem = "repeated or out of order" if seq <= last.seq else "missing"
            raise CorruptEvent(
                f"events are {problem}: {envelope.incarnation} has number {seq} at position {position} after number "
                f"{last.seq} at position {last.position}. The log lost or reordered events, or two processes share an "
                "incarnation."
            )
        elif envelope.prev_hash != last.digest:
            raise CorruptEvent(
                f"the bytes at position {last.position} changed: the next event of {envelope.incarnation}, at position "
                f"{position}, names sha256 {envelope.prev_hash.hex()[:16]}… of it, they have {last.digest.hex()[:16]}…. "
                "One of the two was altered after it was written."
            )
        self.links[envelope.incarnation] = ChainLink(seq, digest, position)


class RollingDigest:
    """Digest of the log up to a position: a fold of sha256(previous || sha256(stored bytes)) from 32 zero bytes."""

    __slots__ = ("value",)

    def __init__(self, value: bytes = bytes(32)) -> None:
        self.value = value

    def advance(self, digest: bytes) -> bytes:
        """Add the next event's sha256; return the new value."""
        self.value = sha256(self.value + digest).digest()
        return self.value
