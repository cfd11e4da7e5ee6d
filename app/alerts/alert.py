"""What an alert is: a plugin that finds, in a run's events or in the running system, what a person should know.

    log ──> facts that it watches ──> EventFold.apply ──> AlertIncidents.begin, end
    system, every few seconds ──────> AlertQuery ───────> incidents that are new or over

A fold is pure: every fold of a log finds the same incidents. A query looks at what no event tells, such as lag.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from hindcast.app.alerts import ALERTS
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.plugins import NoOptions, find_plugin, read_options
from hindcast.core.settings.schema import Settings
from hindcast.core.structs import convert
from hindcast.events.envelope import Recorded

KEPT = 100
"""Newest incidents in the state; the store of incidents has all."""

Severity = Literal["warning", "critical"]
Lags = Mapping[str, tuple[float | None, int]]
"""Consumer -> its lag in seconds and its position; lag None: not known now."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should know about a run."""

    id: str
    """Kind and position of its beginning, so that every fold of the log gives it the same id."""
    kind: str
    """Name of its alert."""
    position: int
    """Position at which it began."""
    text: str
    over: str = ""
    """How it ended; empty: it has not ended."""
    over_at: int = 0
    """Position at which it ended, if it comes from the log."""


class AlertIncidents:
    """The incidents of one alert during one event."""

    def __init__(self, kind: str, position: int, known: list[Incident]) -> None:
        self.known = known
        """Incidents of all alerts, including this event's."""
        self._kind = kind
        self._position = position

    @property
    def is_open(self) -> bool:
        """Whether an incident of this alert has not ended."""
        return any(one.kind == self._kind and not one.over for one in self.known)

    def begin(self, text: str, *, over: str = "") -> None:
        """Record an incident. `over`: how it has ended already."""
        incident = Incident(
            id=f"{self._kind}.{self._position}",
            kind=self._kind,
            position=self._position,
            text=text,
            over=over,
            over_at=self._position if over else 0,
        )
        self.known = [*self.known, incident][-KEPT:]

    def end(self, text: str) -> None:
        """End the open incidents of this alert. `text`: how they ended."""
        self.known = [
            msgspec.structs.replace(one, over=text, over_at=self._position)
            if one.kind == self._kind and not one.over
            else one
            for one in self.known
        ]


class EventFold(Protocol):
    """An alert about events. Its state is a msgspec struct of the type that `initial` returns."""

    def initial(self) -> Any:
        """The empty state."""
        ...

    def apply(self, state: Any, recorded: Recorded, incidents: AlertIncidents) -> None:
        """Change the state by one more event, and begin or end incidents."""
        ...


class SystemView(msgspec.Struct, frozen=True, kw_only=True):
    """The running system at one moment."""

    last: int
    """Last position of the log; 0: the broker was never reached."""
    lags: Lags | None
    """Consumers at work; None: not known now."""
    expected: bool
    """Whether something should be recorded: the system is up, not paused and not finished."""
    now_s: float
    """A monotonic clock."""


AlertQuery = Callable[[SystemView, Sequence[Incident]], list[Incident]]
"""From a view of the system and this alert's open incidents to new incidents and to those that are over."""


class AlertContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an alert is opened with."""

    name: str
    settings: Settings
    """Settings of the run."""
    options: Any
    """The alert's options, of the type that it declares."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as a plugin. It has a fold, a query, or both."""

    fold: Callable[[AlertContext], EventFold] | None = None
    """Opens the alert about events."""
    query: Callable[[AlertContext], AlertQuery] | None = None
    """Opens the alert about the running system; it may remember earlier views."""
    watches: tuple[type, ...] = ()
    """Classes of the facts that the fold takes; empty: all."""
    severity: Severity = "warning"
    """`critical`: a person should look at once. Messages to the webhook carry it."""
    finds: str = ""
    """What it finds, in a sentence, for people who read which alerts are in use."""
    advice: str = ""
    """What a person does when it is raised, in a sentence or two."""
    options: type[msgspec.Struct] = NoOptions
    """What the alert's entry of `telemetry.alert_options` may hold. Every option has a default."""
    state_version: int = 1
    """Version of the fold's state. A state of another version is dropped, and the fold begins anew."""


def find_alert(name: str) -> Alert:
    """The alert of this name. Raises PluginError where there is none."""
    found = find_plugin(ALERTS, name, Alert)
    problems = check_alert(found)
    if problems:
        raise PluginError(f"the alert {name!r} cannot be used: {'; '.join(problems)}")
    return found


def check_alert(found: Alert) -> list[str]:
    """What is wrong with an alert, one sentence each."""
    problems = []
    if found.fold is None and found.query is None:
        problems.append("it has neither a fold nor a query")
    try:
        options = convert({}, found.options)
    except (TypeError, msgspec.ValidationError) as error:
        return [*problems, f"its options have no defaults: {error}"]
    if found.fold is not None:
        state = found.fold(AlertContext(name="checked", settings=Settings(), options=options)).initial()
        if not isinstance(state, msgspec.Struct):
            problems.append(f"its fold's state is a {type(state).__name__}, no msgspec.Struct")
    return problems


def alert_options(name: str, given: Mapping[str, Mapping[str, Any]]) -> Any:
    """An alert's entry of the options as its own struct. Raises SettingsError where it is not what the alert allows."""
    return read_options(
        find_alert(name).options, given.get(name, {}), of=f"telemetry.alert_options of the alert {name!r}"
    )


def alert_conflicts(settings: Settings) -> list[str]:
    """What is wrong with the settings of alerts, one sentence each."""
    names, options = settings.telemetry.alerts, settings.telemetry.alert_options
    found = [
        f"telemetry.alert_options names {name!r}, which is no alert of telemetry.alerts"
        for name in options
        if name not in names
    ]
    for name in names:
        try:
            alert_options(name, options)
        except (PluginError, SettingsError) as error:
            found.append(str(error))
    return found
