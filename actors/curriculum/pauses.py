"""Whether new episodes may be begun: a fold of the control events.

Somebody who sees that the run should wait, such as the curriculum when the log or a disk is nearly full, asks for a
pause and later for the resumption of it; a person may lift another's pause (`arguments: of`). While anybody's pause
holds, nothing is requested, nothing that waits is begun, and no request runs out of its time; what was begun is played
to its end.
"""

from dataclasses import dataclass, field

from hindcast.events.catalogue import ControlRequested
from hindcast.events.envelope import Recorded

PAUSE = "pause"
RESUME = "resume"


@dataclass(slots=True)
class Pauses:
    """The pauses in force. `apply` is the only way to change them."""

    reasons: dict[str, str] = field(default_factory=dict)
    """By author."""

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def apply(self, recorded: Recorded) -> None:
        """Fold one event; families other than `control` change nothing."""
        match recorded.fact:
            case ControlRequested(command="pause") as fact:
                self.reasons[fact.author] = fact.reason
            case ControlRequested(command="resume") as fact:
                self.reasons.pop(fact.arguments.get("of", fact.author), None)
