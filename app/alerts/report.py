"""Which alerts of a run are raised, since when, and which rules are watched for: read from the stores of its watchers.

Only a watcher finds incidents: `hindcast start` in a terminal, or `hindcast alerts`. A past position is answered from the
same stores. The end of an alert about events has a position, as long as it is among the newest in the watcher's state. The end
of an alert about the running system has none, so such an alert is shown as raised at a past position, with a note.
"""

from typing import Any

import msgspec

from hindcast.app.alerts.alert import Incident, Severity, alert_options, find_alert
from hindcast.app.alerts.incidents import Incidents
from hindcast.app.alerts.watcher import TARGET, watcher_state
from hindcast.app.attach.attachment import AttachmentStatus, consumers_folder
from hindcast.app.attach.consumers import state_of
from hindcast.app.attach.store import ConsumerStore
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.processes import read_json
from hindcast.core.errors import HindcastError
from hindcast.core.structs import convert


class AlertOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option of an alert."""

    name: str
    value: Any
    default: Any


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that the run's settings name."""

    name: str
    finds: str
    advice: str
    severity: Severity
    of_events: bool
    """Whether it follows from the log; else it looks at the running system."""
    options: list[AlertOption]
    trouble: str = ""
    """Why it cannot be used."""


class RaisedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An incident as of a position."""

    incident: Incident
    severity: Severity
    advice: str
    ended_later: str = ""
    """How it ended after the position or at an unknown one; empty: it has not ended."""
    end_unknown: bool = False
    """Whether it is not known if it had ended by the position."""


class AlertWatcher(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that watches for alerts."""

    name: str
    state: str
    detail: str
    position: int
    """Position up to which it has folded the log."""


class AlertReport(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts of a run as of a position."""

    raised: list[RaisedAlert]
    """Not over at the position, newest first."""
    over: list[Incident]
    """Over by then, newest first."""
    rules: list[AlertRule]
    watchers: list[AlertWatcher]


def alert_report(run: RunHandle, *, as_of: int | None = None) -> AlertReport:
    """Alerts as of a position; None: as they are now.

    Raises:
        StoreUnavailable: a watcher's store does not answer.
    """
    rules = [_rule(run, name) for name in run.settings.telemetry.alerts]
    by_name = {rule.name: rule for rule in rules}
    watchers, incidents = _watched(run)
    raised: list[RaisedAlert] = []
    over: list[Incident] = []
    for one in sorted(incidents.values(), key=lambda one: (-one.position, one.id)):
        if as_of is not None and one.position > as_of:
            continue
        unknown = bool(one.over) and as_of is not None and not one.over_at
        if one.over and not unknown and (as_of is None or one.over_at <= as_of):
            over.append(one)
            continue
        rule = by_name.get(one.kind)
        raised.append(
            RaisedAlert(
                incident=one,
                severity=rule.severity if rule else "warning",
                advice=rule.advice if rule else "",
                ended_later=one.over,
                end_unknown=unknown,
            )
        )
    return AlertReport(raised=raised, over=over, rules=rules, watchers=watchers)


def _watched(run: RunHandle) -> tuple[list[AlertWatcher], dict[str, Incident]]:
    """The run's watchers and what they found, by id."""
    watchers: list[AlertWatcher] = []
    found: dict[str, Incident] = {}
    for path in sorted(consumers_folder(run.folder).glob("*.json")):
        content = read_json(path)
        status = None if content is None else convert(content, AttachmentStatus)
        if status is None or status.target != TARGET:
            continue
        store = ConsumerStore(status.store)
        try:
            known = Incidents(store, run.name).all()
            held = {one.id: one for one in watcher_state(store, run.name, status.name).incidents}
            position = max(
                (one.position for one in store.standings(run.name) if one.name == status.name), default=0
            )
        finally:
            store.close()
        state, detail = state_of(status)
        watchers.append(AlertWatcher(name=status.name, state=state, detail=detail, position=position))
        for one in known:
            newest = held.get(one.id, one)
            before = found.get(one.id)
            if before is None or (newest.over and not before.over) or newest.over_at > before.over_at:
                found[one.id] = newest
    return watchers, found


def _rule(run: RunHandle, name: str) -> AlertRule:
    try:
        alert = find_alert(name)
        options = msgspec.structs.asdict(alert_options(name, run.settings.telemetry.alert_options))
        defaults = msgspec.structs.asdict(convert({}, alert.options))
    except HindcastError as error:
        return AlertRule(
            name=name, finds="", advice="", severity="warning", of_events=True, options=[], trouble=str(error)
        )
    return AlertRule(
        name=name,
        finds=alert.finds,
        advice=alert.advice,
        severity=alert.severity,
        of_events=alert.fold is not None,
        options=[
            AlertOption(name=option, value=value, default=defaults[option])
            for option, value in options.items()
        ],
    )
