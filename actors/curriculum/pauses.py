"""Whether new episodes may begin: a fold of the control events.

An author asks for a pause and later resumes it: the curriculum when the log or a disk is nearly full, or a person. A
person may lift another author's pause (`arguments: of`). While any pause holds, no episode is requested or begun, and no
request expires. Running episodes are played to their end.
"""

from dataclasses import dataclass, field

from hindcast.events.catalogue import ControlRequested
from hindcast.events.envelope import Recorded

PAUSE = "pause"
RESUME = "resume"


@dataclass(slots=True)
class Pauses:
    """The pauses in force. Only `apply` changes them."""

    reasons: dict[str, str] = field(default_factory=dict)
    """Reasons by author."""

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def apply(self, recorded: Recorded) -> None:
        """Fold one event; families other than `control` change nothing."""
        match recorded.fact:
            case ControlRequested(command="pause") as fact:
                self.reasons[fact.author] = fact.reason
            case ControlRequested(command="resume") as fact:
                self.reasons.pop(fact.arguments.get("of", fact.author), None)
