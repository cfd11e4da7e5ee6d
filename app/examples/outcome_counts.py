"""How many episodes ended how: the smallest fold. `hindcast consumer show outcome_counts` shows its state."""

from hindcast.api import Recorded
from hindcast.events.catalogue import EpisodeAbandoned, EpisodeCancelled, EpisodeEnded


class OutcomeCounts:
    """Counts the reasons for which episodes ended."""

    def initial(self) -> dict[str, int]:
        """None yet."""
        return {}

    def apply(self, state: dict[str, int], event: Recorded) -> dict[str, int]:
        """One more."""
        match event.fact:
            case (
                EpisodeEnded(reason=reason)
                | EpisodeAbandoned(reason=reason)
                | EpisodeCancelled(reason=reason)
            ):
                state[reason] = state.get(reason, 0) + 1
        return state


consumer = OutcomeCounts()
