"""The rolling digest of the log, compared with everything that recorded it: plans, forks, snapshots, outside witnesses.

It is the fold sha256(previous || sha256(stored bytes)) from 32 zero bytes. Two logs that differ in one byte, or in the order
of two events, have different digests from there on. Chains alone show neither a reordering between producers nor a change in
a producer's last event.
A value that does not fit is reported once: what follows is checked from the recorded value.
"""

from collections import deque
from hashlib import sha256
from typing import NamedTuple

from hindcast.storage.audit.chains import Chains
from hindcast.storage.audit.defects import Findings

WINDOW = 1 << 15
"""How many events back a digest may be recorded: a plan is written some tens of events after the position it is based on."""
START = bytes(32)


class _Doubt(NamedTuple):
    """A part of the log that differs from a recorded digest."""

    position: int
    """Where the digest was recorded, or the position it was recorded for."""
    event: str
    said_by: str
    after: int
    until: int
    expected: bytes
    found: bytes
    suspects: dict[int, str]
    """Position -> incarnation: events of that part, and the one that records the digest, that no successor confirmed by then."""
    explained_at: int
    """Last known defect in that part when it was recorded; 0: none."""


class Digests:
    """Folds the digest and keeps its latest values; about 6 MB."""

    def __init__(self, findings: Findings, chains: Chains, *, first: int) -> None:
        """`first`: position that reading begins at; if later than 1, the digest is unknown until an event records it."""
        self._findings = findings
        self._chains = chains
        self._first = first
        self._known = first == 1
        self._value = START
        self._position = first - 1
        self._leaves: deque[bytes] = deque(maxlen=WINDOW)
        self._values: deque[bytes] = deque(maxlen=WINDOW)
        self._trusted = first - 1
        """Position up to which the digest was confirmed, or found wrong and reported."""
        self._doubts: list[_Doubt] = []

    @property
    def value(self) -> bytes:
        """Digest of everything read so far; empty if unknown."""
        return self._value if self._known else b""

    def lose(self, position: int) -> None:
        """Note a hole up to this position: the digest is unknown until an event records it again."""
        self._known, self._first, self._position = False, position + 1, position
        self._leaves.clear()
        self._values.clear()

    def advance(self, position: int, digest: bytes) -> None:
        """Take in the next event's sha256."""
        self._value = sha256(self._value + digest).digest()
        self._position = position
        self._leaves.append(digest)
        self._values.append(self._value)

    def _back(self, position: int) -> int | None:
        """Index of a position in the window."""
        back = len(self._values) - 1 - (self._position - position)
        return back if 0 <= back < len(self._values) else None

    def compare(self, noted: bytes, at: int, *, position: int, said_by: str, event: str = "") -> None:
        """Compare the digest of the log up to position `at` that `said_by` recorded at `position`."""
        if at < self._first and (self._first > 1 or noted == START):
            return
        back = self._back(at)
        if back is None:
            self._findings.add(
                "digest",
                position,
                f"{said_by} notes the digest of the log up to a position that it cannot know it of",
                event=event,
                expected=f"one of the {WINDOW} positions before it",
                found=f"position {at}",
            )
            return
        if self._known and self._values[back] == noted:
            self._trusted = max(self._trusted, at)
            return
        if self._known and at > self._trusted:
            ends = self._chains.ends_after(self._trusted)
            self._doubts.append(
                _Doubt(
                    position=position,
                    event=event,
                    said_by=said_by,
                    after=self._trusted,
                    until=at,
                    expected=noted,
                    found=self._values[back],
                    suspects={w: name for w, name in ends.items() if w <= at or (w == position and event)},
                    explained_at=self._findings.latest if self._findings.latest > self._trusted else 0,
                )
            )
        elif self._known:
            self._tell_liar(noted, at, position=position, said_by=said_by, event=event)
            return
        self._go_on_from(noted, back)
        self._known, self._trusted = True, max(self._trusted, at)

    def _go_on_from(self, noted: bytes, back: int) -> None:
        """Fold the later events again from a recorded value, so that each deviation is reported once."""
        leaves, values = list(self._leaves), list(self._values)
        values[back] = noted
        for index in range(back + 1, len(values)):
            values[index] = sha256(values[index - 1] + leaves[index]).digest()
        self._values = deque(values, maxlen=WINDOW)
        self._value = values[-1]

    def _tell_liar(self, noted: bytes, at: int, *, position: int, said_by: str, event: str) -> None:
        back = self._back(at)
        assert back is not None
        self._findings.add(
            "digest",
            position,
            f"{said_by} notes another digest of the log up to position {at} than others did",
            event=event,
            expected=f"sha256 {self._values[back].hex()}",
            found=f"sha256 {noted.hex()}",
            meaning="What it notes was altered, or it was made from another log.",
        )

    def finish(self) -> None:
        """Report the parts that differ, now that later events have confirmed theirs."""
        for doubt in self._doubts:
            suspects = tuple(
                sorted(
                    position
                    for position, incarnation in doubt.suspects.items()
                    if not self._chains.is_vouched(incarnation, position)
                )
            )
            if doubt.explained_at:
                meaning = f"It follows from the defects up to position {doubt.explained_at}, unless more was altered there."
            elif suspects:
                meaning = "One of the suspects was altered (no successor vouches for them), or events changed places."
            else:
                meaning = (
                    "Every producer's events are as they were: events of different producers changed places."
                )
            self._findings.add(
                "digest",
                doubt.after + 1,
                f"the log from here to position {doubt.until} is not the one that {doubt.said_by} notes",
                until=doubt.until,
                event="",
                expected=f"rolling digest {doubt.expected.hex()}",
                found=f"rolling digest {doubt.found.hex()}",
                meaning=meaning,
                suspects=() if doubt.explained_at else suspects,
            )
