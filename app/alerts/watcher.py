"""Watches a run for incidents and reports them on the terminal and to a webhook.

Consumes the log through `attach`, like a user's consumer: position and fold state move in one transaction. Waits `LOOK_S`
between checks of that state, the consumers and the log's end. Produces incidents in the consumer's own store, each recorded
once, and messages about them, each marked once it was delivered (`app.alerts.incidents`).
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import structlog

from hindcast.app.alerts.incidents import AlertMessage, Incidents
from hindcast.app.alerts.rules import AlertFold, AlertState, Incident, Thresholds
from hindcast.app.alerts.webhook import WebhookFailed, post
from hindcast.app.attach.attachment import Attachment, AttachmentSession, attach, store_url
from hindcast.app.attach.consumers import ConsumerRow, list_consumers
from hindcast.app.attach.store import ConsumerPosition, ConsumerStore
from hindcast.app.attach.target import Attached
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import BrokerUnreachable
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


Lags = Mapping[str, tuple[float | None, int]]
"""Consumer -> its lag in seconds and its position; lag None: not known now."""


class _LagSeen(NamedTuple):
    """One consumer at the last check."""

    lag_s: float
    position: int
    lag_at_move_s: float
    """Its lag when its position last moved."""


class StandstillClock:
    """Remembers since when the log and each consumer have stood still."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._limits = thresholds
        self._last: tuple[int, float] | None = None
        self._lags: dict[str, _LagSeen] = {}

    def still(self, last: int, now_s: float, *, expected: bool, standing: list[Incident]) -> list[Incident]:
        """Incidents from the log's last position. `expected`: whether some role should be at work."""
        if self._last is None or self._last[0] != last or not expected:
            self._last = (last, now_s)
        for_s = now_s - self._last[1]
        if expected and for_s >= self._limits.still_s:
            text = f"nothing moves: nothing was recorded after position {last} for {for_s:.0f} s, though the system is up"
            return [Incident(id=f"still.{last}", kind="still", position=last, text=text)]
        return [
            msgspec.structs.replace(one, over=f"it moves again, at position {last}")
            for one in standing
            if one.position != last
        ]

    def lag(self, lags: Lags, *, standing: list[Incident]) -> list[Incident]:
        """Incidents from the lags of all consumers at work.

        A consumer falls behind if its lag grows although it applies events. One long event, such as an update, may hold a position
        for `still_s` before it counts.
        """
        found = []
        begun = {one.id.split(".")[1]: one for one in standing}
        for name, one in begun.items():
            if name not in lags:
                found.append(msgspec.structs.replace(one, over=f"{name} is not attached any more"))
        for name, (lag_s, position) in lags.items():
            if lag_s is None:
                continue
            seen = self._lags.get(name, _LagSeen(lag_s, position, lag_s))
            moved = position != seen.position
            at_move_s = lag_s if moved else seen.lag_at_move_s
            grows = (moved and lag_s > seen.lag_s) or lag_s - at_move_s > self._limits.still_s
            if name in begun and lag_s < self._limits.lag_s / 2:
                found.append(msgspec.structs.replace(begun[name], over=f"{name} is {lag_s:.0f} s behind"))
            elif name not in begun and grows and lag_s > self._limits.lag_s:
                text = f"lag grows: {name} is {lag_s:.0f} s behind, at position {position}"
                found.append(Incident(id=f"lag.{name}.{position}", kind="lag", position=position, text=text))
            self._lags[name] = _LagSeen(lag_s, position, at_move_s)
        return found


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
    thresholds: Thresholds,
    session: AttachmentSession,
    said: Said,
    *,
    name: str = NAME,
    begin: str = "live",
    new_since_ns: int | None = None,
    webhook: str = "",
    look_s: float = LOOK_S,
) -> int:
    """Watch until the session is stopped; returns the position reached. `name`: consumer name of the position and the marks.

    `new_since_ns`: at the first start under this name, incidents recorded before are folded but not delivered; None: deliver
    all.

    Raises:
        AlreadyAttached: another process watches under this name.
        BrokerUnreachable, StoreUnavailable, ForeignLog: the log or the store failed.

    """
    fold = AlertFold(thresholds, judge=handle.settings.judge.judges[0])
    store = ConsumerStore(store_url(handle, name))
    incidents = Incidents(store, handle.name)
    await asyncio.to_thread(incidents.prepare)
    teller = AlertSender(incidents, said, webhook=webhook)
    looking = _Looking(
        handle, StandstillClock(thresholds), teller, incidents, lambda: _state(store, handle.name, name)
    )
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
        clock: StandstillClock,
        teller: AlertSender,
        incidents: Incidents,
        state: Callable[[], AlertState],
    ) -> None:
        """`state` reads the fold's current state. Blocking."""
        self._handle = handle
        self._clock = clock
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
        found: list[Incident] = []
        up = self._handle.is_running()
        last, lags = await self._reached(up=up)
        expected = up and not state.pauses and not state.finished
        still = await asyncio.to_thread(self._incidents.unfinished, "still")
        if last:  # 0: the broker was never reached, so a standstill means nothing
            found += self._clock.still(last, time.monotonic(), expected=expected, standing=still)
        if lags is not None:
            slow = await asyncio.to_thread(self._incidents.unfinished, "lag")
            found += self._clock.lag(lags, standing=slow)
        await asyncio.to_thread(self._incidents.note, state.incidents, folded=True)
        await asyncio.to_thread(self._incidents.note, found)
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


def _state(store: ConsumerStore, run: str, name: str) -> AlertState:
    mine = _standings(store, run, name)
    with suppress(msgspec.MsgspecError):
        if mine and mine[0].state is not None:
            return msgspec.msgpack.decode(mine[0].state, type=AlertState)
    return AlertState()


def _standings(store: ConsumerStore, run: str, name: str) -> list[ConsumerPosition]:
    return [one for one in store.standings(run) if one.name == name]


def _watched_before(store: ConsumerStore, incidents: Incidents, run: str, name: str) -> bool:
    return incidents.has_passed_over() or bool(_standings(store, run, name))
