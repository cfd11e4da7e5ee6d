"""Defects that an audit finds: their positions and what they may mean."""

import msgspec

KEPT = 1000
"""Defects reported one by one; further ones are only counted. A broken disk can cause one for every event."""


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a log that cannot be right."""

    check: str
    """The check that found it: `bytes`, `position`, `chain`, `digest`, `name`, `reference`, `task`, `episode`, `training`,
    `operation`, `blob`, `witness`.
    """
    position: int
    until: int
    """Last position concerned; `position` for a single event."""
    event: str
    """Type of the event at `position`; empty if unknown."""
    what: str
    expected: str
    found: str
    meaning: str
    suspects: tuple[int, ...] = ()
    """Positions of which at least one must have changed, if it is not known which."""

    def names(self, position: int) -> bool:
        """Whether this defect may concern a position."""
        return position in self.suspects or (not self.suspects and self.position <= position <= self.until)


ALTERED = "The stored bytes are not those that a producer appended."
LOST = "The log lost events, or they were removed."
FORGED = "A fault of the process that recorded it, or an event was altered, lost or put in afterwards."


class Findings:
    """Collects defects, a bounded number of them."""

    def __init__(self) -> None:
        self._kept: list[Defect] = []
        self.count = 0
        self.latest = 0
        """Last position with a defect so far."""

    def add(
        self,
        check: str,
        position: int,
        what: str,
        *,
        event: str = "",
        expected: str = "",
        found: str = "",
        meaning: str = FORGED,
        until: int | None = None,
        suspects: tuple[int, ...] = (),
    ) -> None:
        """Add one defect; beyond `KEPT`, only count it."""
        last = position if until is None else until
        self.count += 1
        self.latest = max(self.latest, last)
        if len(self._kept) < KEPT:
            self._kept.append(
                Defect(
                    check=check,
                    position=position,
                    until=last,
                    event=event,
                    what=what,
                    expected=expected,
                    found=found,
                    meaning=meaning,
                    suspects=suspects,
                )
            )

    def defects(self) -> tuple[Defect, ...]:
        """The kept defects, by position."""
        return tuple(sorted(self._kept, key=lambda defect: (defect.position, defect.until)))
