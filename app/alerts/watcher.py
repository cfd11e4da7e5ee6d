"""Watches a run for incidents and reports them on the terminal and to a webhook.

Consumes the log through `attach`, like a user's consumer: position and fold state move in one transaction. Waits `LOOK_S`
between checks of that state, the consumers and the log's end. Produces incidents in the consumer's own store, each recorded
once, and messages about them, each marked once it was delivered (`app.alerts.incidents`).
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from hindcast.app.alerts.alert import Lags, SystemView
from hindcast.app.alerts.incidents import AlertMessage, Incidents
from hindcast.app.alerts.rules import AlertFold, AlertState, OpenAlert, open_alerts
from hindcast.app.alerts.webhook import WebhookFailed, post
from hindcast.app.attach.attachment import Attachment, AttachmentSession, attach, store_url
from hindcast.app.attach.consumers import ConsumerRow, list_consumers
from hindcast.app.attach.store import ConsumerPosition, ConsumerStore
from hindcast.app.attach.target import Attached
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import BrokerUnreachable, SettingsError
from hindcast.core.structs import decode_msgpack
from hindcast.events.codec import decode_envelope
from hindcast.events.log.port import EventLog

NAME = "alerts"
TARGET = "hindcast.app.alerts.rules:AlertFold"
LOOK_S = 5.0
FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 300.0
"""Longest pause between two attempts to send an alert to a webhook that refuses it."""

_log = structlog.get_logger(__name__)

Said = Callable[[AlertMessage], None]


class AlertSender:
    """Shows a message once on the terminal, and sends it to the webhook until it is accepted."""

    def __init__(self, incidents: Incidents, said: Said, *, webhook: str) -> None:
        self._incidents = incidents
        self._said = said
        self._webhook = webhook
        self._next_try = 0.0
        self._wait_s = FIRST_RETRY_S

    def tell(self, now_s: float) -> None:
        """Deliver everything undelivered. Blocking. The terminal does not wait for the webhook."""
        for message in self._incidents.unshown():
            self._said(message)
            self._incidents.mark_shown(message)
        if now_s < self._next_try:
            return
        for message in self._incidents.untold():
            if self._webhook:
                try:
                    post(self._webhook, message)
                except WebhookFailed as error:
                    _log.warning(str(error), again_in_s=self._wait_s)
                    self._next_try = now_s + self._wait_s
                    self._wait_s = min(2 * self._wait_s, LONGEST_RETRY_S)
                    return
                self._wait_s = FIRST_RETRY_S
            self._incidents.mark(message)


async def watch_alerts(
    handle: RunHandle,
    session: AttachmentSession,
    said: Said,
    *,
    also: Sequence[str] = (),
    options: Mapping[str, Mapping[str, Any]] = {},
    name: str = NAME,
    begin: str = "live",
    new_since_ns: int | None = None,
    webhook: str = "",
    look_s: float = LOOK_S,
) -> int:
    """Watch until the session is stopped; returns the position reached. `name`: consumer name of the position and the marks.

    `also`: alerts in addition to those of `telemetry.alerts`. `options`: options by alert, laid over `telemetry.alert_options`.
    `new_since_ns`: at the first start under this name, incidents recorded before are folded but not delivered; None: deliver
    all.

    Raises:
        AlreadyAttached: another process watches under this name.
        BrokerUnreachable, StoreUnavailable, ForeignLog: the log or the store failed.
        PluginError, SettingsError: an alert is not installed, or an option is not what it allows.

    """
    telemetry = handle.settings.telemetry
    names = (*telemetry.alerts, *also)
    unused = sorted(set(options) - set(names))
    if unused:
        raise SettingsError(f"options are given for alerts that are not in use: {', '.join(unused)}")
    merged = {one: {**telemetry.alert_options.get(one, {}), **options.get(one, {})} for one in names}
    alerts = open_alerts(names, handle.settings, merged)
    fold = AlertFold(alerts)
    store = ConsumerStore(store_url(handle, name))
    incidents = Incidents(store, handle.name, {one.name: one.alert.severity for one in alerts})
    await asyncio.to_thread(incidents.prepare)
    teller = AlertSender(incidents, said, webhook=webhook)
    looking = _Looking(handle, alerts, teller, incidents, lambda: watcher_state(store, handle.name, name))
    attachment = Attachment(target=TARGET, name=name, begin=begin)
    over = asyncio.Event()
    try:
        if new_since_ns is not None and not await asyncio.to_thread(
            _watched_before, store, incidents, handle.name, name
        ):
            async with handle.connect_log("reader") as log:
                past = await _last_before(log, new_since_ns)
            await asyncio.to_thread(incidents.pass_over, past)
        async with asyncio.TaskGroup() as group:
            group.create_task(looking.until(over, look_s))
            report = await attach(handle, attachment, session, loading=lambda target: Attached(target, fold))
            over.set()
        await looking.once()  # the last events
    finally:
        store.close()
    return report.position


async def _last_before(log: EventLog, time_ns: int) -> int:
    """The last position recorded by a time, by its producer's clock; the log may have been unreachable since."""
    low, high = 0, (await log.identity()).last
    while low < high:
        middle = (low + high + 1) // 2
        stored = await log.read(after=middle - 1, limit=1)
        if stored and decode_envelope(stored[0]).occurred_ns <= time_ns:
            low = middle
        else:
            high = middle - 1
    return low


def lags_of(rows: Sequence[ConsumerRow]) -> Lags:
    """Lags of all consumers at work, without watchers, stopped consumers and those of other machines.

    A work queue counts even if its worker is stopped, because its work waits here. The queue of episodes counts only then: the
    curriculum keeps up to `curriculum.max_running` requests waiting there.
    """
    working = [
        row
        for row in rows
        if row.target != TARGET
        and (row.state != "stopped" or row.kind == "queue")
        and (row.kind, row.name, row.state) != ("queue", "episodes", "running")
    ]
    return {row.name: (row.lag_s, row.position or 0) for row in working}


class _Looking:
    """Checks every source of incidents."""

    def __init__(
        self,
        handle: RunHandle,
        alerts: Sequence[OpenAlert],
        teller: AlertSender,
        incidents: Incidents,
        state: Callable[[], AlertState],
    ) -> None:
        """`state` reads the fold's current state. Blocking."""
        self._handle = handle
        self._queries = [(one.name, one.query) for one in alerts if one.query is not None]
        self._teller = teller
        self._incidents = incidents
        self._state = state
        self._last = 0

    async def until(self, over: asyncio.Event, look_s: float) -> None:
        """Check repeatedly. A running check finishes: if it were canceled, its thread would still report during the last check."""
        while not over.is_set():
            await self.once()
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), look_s)

    async def once(self) -> None:
        """Check once: record new incidents and deliver them."""
        state = await asyncio.to_thread(self._state)
        up = self._handle.is_running()
        last, lags = await self._reached(up=up)
        expected = up and not state.pauses and not state.finished
        view = SystemView(last=last, lags=lags, expected=expected, now_s=time.monotonic())
        await asyncio.to_thread(self._incidents.note, state.incidents, folded=True)
        for name, query in self._queries:
            standing = await asyncio.to_thread(self._incidents.unfinished, name)
            await asyncio.to_thread(self._incidents.note, query(view, standing))
        await asyncio.to_thread(self._teller.tell, time.monotonic())

    async def _reached(self, *, up: bool) -> tuple[int, Lags | None]:
        """The log's last position, and the lags of consumers at work; None: not known now."""
        try:
            async with self._handle.connect_log("reader") as log:
                self._last = (await log.identity()).last
            return self._last, lags_of(await list_consumers(self._handle)) if up else None
        except BrokerUnreachable as error:
            _log.warning(str(error))
            return self._last, None


def watcher_state(store: ConsumerStore, run: str, name: str) -> AlertState:
    """State of a watcher's folds; the empty one if it never watched the run."""
    mine = _standings(store, run, name)
    with suppress(msgspec.MsgspecError):
        if mine and mine[0].state is not None:
            return decode_msgpack(mine[0].state, AlertState)
    return AlertState()


def _standings(store: ConsumerStore, run: str, name: str) -> list[ConsumerPosition]:
    return [one for one in store.standings(run) if one.name == name]


def _watched_before(store: ConsumerStore, incidents: Incidents, run: str, name: str) -> bool:
    return incidents.has_passed_over() or bool(_standings(store, run, name))
