"""Names updates whose metrics leap: further than ANOMALY_TIMES the usual spread from the median of the last 30.

Spread is 1.4826 times the median absolute deviation: a standard deviation where values are normal, and one leap does not
move it (Iglewicz and Hoaglin, 1993).
"""

import os
import sys
from statistics import median

from hindcast.api import Recorded
from hindcast.events.catalogue import UpdateApplied

TIMES, WINDOW, FEWEST = float(os.environ.get("ANOMALY_TIMES", "6")), 30, 8
WATCHED = ("loss", "kl", "gradient_norm", "mismatch_kl", "staleness_mean", "entropy_estimate")


class AnomalyWatcher:
    """A fold whose state is the newest values of each metric."""

    def initial(self) -> dict[str, list[float]]:
        """None yet."""
        return {}

    def apply(self, state: dict[str, list[float]], event: Recorded) -> dict[str, list[float]]:
        """Compare an update of the policy with those before it."""
        if isinstance(event.fact, UpdateApplied) and event.fact.model == "policy":
            for name in filter(event.fact.metrics.__contains__, WATCHED):
                value, before = event.fact.metrics[name], state.setdefault(name, [])
                middle = median(before or [value])
                spread = 1.4826 * median([abs(one - middle) for one in before] or [0.0])
                if len(before) >= FEWEST and abs(value - middle) > TIMES * max(spread, 1e-3 * abs(middle)):
                    told = f"{name} {value:.4g}, of late {middle:.4g} with a spread of {spread:.2g}"
                    sys.stdout.write(f"update {event.fact.update} at position {event.position}: {told}\n")
                state[name] = [*before, value][-WINDOW:]
        return state


consumer = AnomalyWatcher()
