"""Slow steps: an alert as a plugin. It begins when the last steps took long, and is over when they no longer do."""

from statistics import fmean

import msgspec

from hindcast.api import Alert, AlertContext, AlertIncidents, Recorded, events


class SlowStepsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This alert's entry of `telemetry.alert_options`."""

    steps: int = 20
    """Number of steps in the mean."""
    most_ms: float = 5000.0
    """Longest mean time of a step: to read the page, to sample the answer and to act, in milliseconds."""


class SlowStepsState(msgspec.Struct, kw_only=True):
    """State of the fold."""

    durations_ms: list[float] = []
    """Of the last steps."""


class SlowSteps:
    """Finds steps that take long."""

    def __init__(self, context: AlertContext) -> None:
        self._options: SlowStepsOptions = context.options

    def initial(self) -> SlowStepsState:
        """The empty state."""
        return SlowStepsState()

    def apply(self, state: SlowStepsState, recorded: Recorded, incidents: AlertIncidents) -> None:
        """Take one more step."""
        step = recorded.fact
        assert isinstance(step, events.StepTaken)
        taken_ms = step.observe_ms + step.generate_ms + step.act_ms
        state.durations_ms = [*state.durations_ms, taken_ms][-self._options.steps :]
        if len(state.durations_ms) < self._options.steps:
            return
        mean_ms = fmean(state.durations_ms)
        told = f"the last {self._options.steps} steps took {mean_ms:.0f} ms each"
        if mean_ms <= self._options.most_ms:
            incidents.end(f"steps are fast again: {told}")
        elif not incidents.is_open:
            incidents.begin(f"steps are slow: {told}")


ALERT = Alert(fold=SlowSteps, watches=(events.StepTaken,), options=SlowStepsOptions)
