"""What all checks of facts have in common: where defects go, and how one is worded."""

import math
import re
from typing import Any

from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import FORGED, Findings

DIGEST = re.compile(r"[0-9a-f]{64}")


class Check:
    """Base of the checks that follow the facts of one kind through the log."""

    name = ""
    """Of the check, as a defect tells it."""

    def __init__(self, findings: Findings, *, since: int) -> None:
        """`since`: nothing is known of what stands up to this position; 0: everything was read."""
        self._findings = findings
        self._since = since

    @property
    def _whole(self) -> bool:
        """Whether everything was read, so that whatever is referred to must have been seen."""
        return self._since == 0

    def lose(self, position: int) -> None:
        """There is a hole up to this position: it is told of as such, and what may lie in it is not missed again."""
        self._since = position

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

    def consulted(self, event: Event) -> None:
        """What a fact says that it asked of an endpoint: a question by its digest, and nothing counted below 0."""
        said = event.payload["consulted"]
        if said is None:
            return
        named = DIGEST.fullmatch(said["request"]) is not None
        self.require(named, event, "what was asked", "64 hexadecimal characters", said["request"])
        counts = {name: said[name] for name in ("prompt_tokens", "answer_tokens", "tries", "cost_usd")}
        sound = all(0 <= count < math.inf for count in counts.values())
        self.require(sound, event, "what asking took", "finite numbers, none below 0", counts)

    def by_role(self, event: Event, role: str) -> None:
        """Only processes of one role record such facts."""
        if event.producer.split(".", 1)[0] != role:
            self.defect(event, f"only a {role} records this", f"{role}.N", event.producer)
