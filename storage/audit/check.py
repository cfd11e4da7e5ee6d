"""Base class of the checks of facts: how they report defects."""

import math
import re
from typing import Any

from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import FORGED, Findings

DIGEST = re.compile(r"[0-9a-f]{64}")


class Check:
    """Base of the checks that follow the facts of one kind through the log."""

    name = ""
    """Name of the check, as in `Defect.check`."""

    def __init__(self, findings: Findings, *, since: int) -> None:
        """`since`: events up to this position were not read; 0: all were read."""
        self._findings = findings
        self._since = since

    @property
    def _read_all(self) -> bool:
        """Whether everything was read, so that every reference must have been seen."""
        return self._since == 0

    def lose(self, position: int) -> None:
        """Note a hole up to this position; it is reported elsewhere, and references into it are no defects."""
        self._since = position

    def defect(
        self, event: Event, what: str, expected: Any = "", found: Any = "", *, meaning: str = FORGED
    ) -> None:
        """Report something about this event that cannot be right."""
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
        """Report a defect unless the condition holds."""
        if not holds:
            self.defect(event, what, expected, found)

    def consulted(self, event: Event) -> None:
        """Check the report of a question to an endpoint: its digest, and counts that are not negative."""
        consultation = event.payload["consulted"]
        if consultation is None:
            return
        has_digest = DIGEST.fullmatch(consultation["request"]) is not None
        self.require(
            has_digest, event, "what was asked", "64 hexadecimal characters", consultation["request"]
        )
        counts = {
            name: consultation[name] for name in ("prompt_tokens", "answer_tokens", "tries", "cost_usd")
        }
        sound = all(0 <= count < math.inf for count in counts.values())
        self.require(sound, event, "what asking took", "finite numbers, none below 0", counts)

    def by_role(self, event: Event, role: str) -> None:
        """Check that a process of the right role recorded the fact."""
        if event.producer.split(".", 1)[0] != role:
            self.defect(event, f"only a {role} records this", f"{role}.N", event.producer)
