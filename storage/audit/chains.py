"""Hash chains: every producer's events in order, each naming the sha256 of the one before.

An event is confirmed by its successor. The last event of each producer has none: only a digest over the whole log, taken
later, confirms it (`digests`).
"""

from typing import NamedTuple

from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import ALTERED, LOST, Findings


class Link(NamedTuple):
    """The newest event of one incarnation."""

    seq: int
    digest: bytes
    position: int
    producer: str
    type: str


class Chains:
    """Follows every chain. Memory: about 400 bytes for each start of a process."""

    def __init__(self, findings: Findings, *, since: int) -> None:
        """`since`: position that reading begins after; from 0 every chain must begin at its beginning."""
        self._findings = findings
        self._read_all = since == 0
        self._last: dict[str, Link] = {}

    def lose(self) -> None:
        """Note a hole in the log: chains may have begun in it."""
        self._read_all = False

    def __len__(self) -> int:
        return len(self._last)

    def take(self, event: Event) -> None:
        """Check one event against the one before it in its chain."""
        last = self._last.get(event.incarnation)
        if last is None:
            self._begin(event)
        else:
            self._continue(event, last)
        self._last[event.incarnation] = Link(
            event.producer_seq, event.digest, event.position, event.producer, event.type
        )

    def _begin(self, event: Event) -> None:
        if event.producer_seq == 0 and event.prev_hash:
            self._findings.add(
                "chain",
                event.position,
                f"the first event of {event.incarnation} names one before it",
                event=event.type,
                expected="no predecessor",
                found=f"sha256 {event.prev_hash.hex()}",
                meaning=ALTERED,
            )
        elif event.producer_seq > 0 and self._read_all:
            self._findings.add(
                "chain",
                event.position,
                f"the beginning of {event.incarnation} is missing",
                event=event.type,
                expected="its number 0 first",
                found=f"number {event.producer_seq}",
                meaning=LOST,
            )

    def _continue(self, event: Event, last: Link) -> None:
        if event.producer_seq != last.seq + 1:
            lost = event.producer_seq > last.seq
            self._findings.add(
                "chain",
                event.position,
                f"events of {event.incarnation} are " + ("missing" if lost else "out of order or repeated"),
                event=event.type,
                expected=f"number {last.seq + 1}, after number {last.seq} at position {last.position}",
                found=f"number {event.producer_seq}",
                meaning=f"{LOST} One between the two may be unreadable."
                if lost
                else "The log was reordered, or two processes share an incarnation.",
            )
        elif event.prev_hash != last.digest:
            self._findings.add(
                "chain",
                last.position,
                f"the bytes are not those that the next event of {event.incarnation} names, at position {event.position}",
                event=last.type,
                expected=f"sha256 {event.prev_hash.hex()}",
                found=f"sha256 {last.digest.hex()}",
                meaning="One of the two was altered after it was written: the first, or what the second says of it.",
                suspects=(last.position, event.position),
            )
        if event.producer != last.producer:
            self._findings.add(
                "chain",
                event.position,
                f"{event.incarnation} is an incarnation of two producers",
                event=event.type,
                expected=last.producer,
                found=event.producer,
                meaning=ALTERED,
            )

    def ends_after(self, position: int) -> dict[int, str]:
        """Events after a position that no successor confirms yet: position -> incarnation."""
        return {link.position: name for name, link in self._last.items() if link.position > position}

    def is_vouched(self, incarnation: str, position: int) -> bool:
        """Whether a successor has confirmed the event at a position, once the newest of its incarnation."""
        return self._last[incarnation].position > position
