"""What all checks of facts have in common: where defects go, and how one is worded."""

from typing import Any

from storage.audit.decoding import Event
from storage.audit.defects import FORGED, Findings


class Check:
    """Base of the checks that follow the facts of one kind through the log."""

    name = ""
    """Of the check, as a defect tells it."""

    def __init__(self, findings: Findings, *, whole: bool) -> None:
        """`whole`: the log is read from its first event, so that whatever is referred to must have been seen."""
        self._findings = findings
        self._whole = whole

    def defect(
        self, event: Event, what: str, expected: Any = "", found: Any = "", *, meaning: str = FORGED
    ) -> None:
        """Something about this event cannot be as it is."""
        self._findings.add(
            self.name,
            event.position,
            what,
            event=event.type,
            expected=str(expected),
            found=str(found),
            meaning=meaning,
        )

    def require(self, holds: object, event: Event, what: str, expected: Any = "", found: Any = "") -> None:
        """A defect unless it holds."""
        if not holds:
            self.defect(event, what, expected, found)

    def by_role(self, event: Event, role: str) -> None:
        """Only processes of one role record such facts."""
        if event.producer.split(".", 1)[0] != role:
            self.defect(event, f"only a {role} records this", f"{role}.N", event.producer)
