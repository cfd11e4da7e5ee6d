"""Folds a run's events into incidents by the alerts in use, attached to the run like any other consumer."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hindcast.actors.curriculum.leases import Pauses
from hindcast.app.alerts.alert import (
    Alert,
    AlertContext,
    AlertIncidents,
    AlertQuery,
    EventFold,
    Incident,
    alert_options,
    find_alert,
)
from hindcast.core.settings.schema import Settings
from hindcast.core.structs import convert
from hindcast.events.catalogue import ControlRequested, RunFinished, RunResumed
from hindcast.events.envelope import Recorded


class FoldState(msgspec.Struct, kw_only=True):
    """State of one alert's fold."""

    version: int
    """`state_version` of the alert that made it."""
    state: Any


class AlertState(msgspec.Struct, kw_only=True):
    """State of all alerts' folds."""

    run: str = ""
    pauses: dict[str, str] = {}
    """Author -> reason of each pause in force."""
    finished: bool = False
    incidents: list[Incident] = []
    """The newest ones of all alerts."""
    folds: dict[str, FoldState] = {}


class OpenAlert:
    """An alert in use."""

    def __init__(self, name: str, alert: Alert, context: AlertContext) -> None:
        self.name = name
        self.alert = alert
        self.fold: EventFold | None = alert.fold(context) if alert.fold else None
        self.query: AlertQuery | None = alert.query(context) if alert.query else None

    def state(self, folds: dict[str, FoldState]) -> Any:
        """The fold's state, as its own type; a new one if there is none of this version."""
        assert self.fold is not None
        held, version = folds.get(self.name), self.alert.state_version
        if held is None or held.version != version:
            held = folds[self.name] = FoldState(version=version, state=self.fold.initial())
        elif not isinstance(held.state, msgspec.Struct):  # decoded from a store
            held.state = convert(held.state, type(self.fold.initial()))
        return held.state


def open_alerts(
    names: Sequence[str], settings: Settings, options: Mapping[str, Mapping[str, Any]]
) -> list[OpenAlert]:
    """Open alerts by their names. Raises PluginError or SettingsError."""
    return [
        OpenAlert(
            name,
            find_alert(name),
            AlertContext(name=name, settings=settings, options=alert_options(name, options)),
        )
        for name in dict.fromkeys(names)
    ]


class AlertFold:
    """The folds of all alerts in use as one consumer."""

    def __init__(self, alerts: Sequence[OpenAlert]) -> None:
        self._alerts = [one for one in alerts if one.fold is not None]

    def initial(self) -> AlertState:
        """The empty state."""
        return AlertState()

    def apply(self, state: AlertState, recorded: Recorded) -> AlertState:
        """The state after one more event; changes and returns the same object."""
        state.run = recorded.envelope.run
        for one in self._alerts:
            if one.alert.watches and not isinstance(recorded.fact, one.alert.watches):
                continue
            assert one.fold is not None
            incidents = AlertIncidents(one.name, recorded.position, state.incidents)
            one.fold.apply(one.state(state.folds), recorded, incidents)
            state.incidents = incidents.known
        match recorded.fact:
            case ControlRequested():
                pauses = Pauses(dict(state.pauses))
                pauses.apply(recorded)
                state.pauses = pauses.reasons
            case RunFinished():
                state.finished = True
            case RunResumed():
                state.finished = False
            case _:
                pass
        return state
