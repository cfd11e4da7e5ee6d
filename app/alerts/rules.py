"""Alert rules: a pure fold of a run's events into incidents, attached to the run like any other consumer.

An incident begins once and may end once. Its id consists of its kind and the position of its beginning, so that every fold
of the log gives it the same id.
"""

from math import isfinite
from statistics import fmean

import msgspec

from hindcast.actors.curriculum.leases import Pauses
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.rl.statistics import difference
from hindcast.events.catalogue import (
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeJudged,
    EpisodeRequested,
    QueueRepaired,
    RunFinished,
    RunResumed,
    UpdateApplied,
)
from hindcast.events.envelope import Recorded
from hindcast.events.jetstream.accounts import may_append
from hindcast.events.registry import BY_CLASS

KEPT = 100
"""Newest incidents in the state; the store of incidents has all."""
MISMATCH = "mismatch_kl"
UPDATES = 10
"""Updates in the present mean; the mean before is over five times as many."""
EARLIER = 5 * UPDATES


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds from which something is an incident."""

    stretch: int = 100
    """Number of judged online episodes in a success rate."""
    success_fall: float = 0.1
    """Drop of success against the best stretch before; the difference's 95 % interval must also be below 0."""
    mismatch_times: float = 3.0
    """Mean mismatch of the last updates, as a multiple of the mean before …"""
    mismatch_least: float = 0.01
    """… and its least absolute value."""
    lag_s: float = 60.0
    """Seconds: a consumer that is further behind, and whose lag grows, is too slow."""
    still_s: float = 300.0
    """Seconds without an event after which a system that is up and not paused stands still; also the longest that one event
    may hold a consumer before its lag counts."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should know about a run."""

    id: str
    kind: str
    """`success`, `mismatch`, `queue`, `intruder`, `lag`, `still`."""
    position: int
    """Position at which it began."""
    text: str
    over: str = ""
    """How it ended; empty: it has not ended."""
    over_at: int = 0
    """Position at which it ended, if it comes from the log."""


class AlertState(msgspec.Struct, kw_only=True):
    """The fold's state."""

    run: str = ""
    online: list[str] = []
    """Online episodes without a verdict."""
    recent: list[bool] = []
    """Outcomes of the newest stretch."""
    block: list[bool] = []
    """Older outcomes that do not fill a stretch yet."""
    best: int | None = None
    """Successes of the best full stretch before the newest."""
    mismatches: list[float] = []
    before: float | None = None
    """Mean mismatch before the current incident."""
    pauses: dict[str, str] = {}
    finished: bool = False
    incidents: list[Incident] = []

    def open(self, kind: str) -> Incident | None:
        """The incident of a kind that has not ended."""
        return next((one for one in self.incidents if one.kind == kind and not one.over), None)


class AlertFold:
    """Detects falling success, rising sampler mismatch, repaired queues, and events that an intruder wrote."""

    def __init__(self, thresholds: Thresholds, *, judge: str) -> None:
        """`judge`: the judge whose verdicts count."""
        self._limits = thresholds
        self._judge = judge

    def initial(self) -> AlertState:
        """The empty state."""
        return AlertState()

    def apply(self, state: AlertState, recorded: Recorded) -> AlertState:
        """The state after one more event; changes and returns the same object."""
        state.run = recorded.envelope.run
        family, producer = BY_CLASS[type(recorded.fact)].family, recorded.envelope.producer
        if not may_append(producer, family):
            text = f"{producer} stands under `{family}`, which its role may not write. Run: hindcast audit {state.run}"
            _begin(state, "intruder", recorded.position, text)
        match recorded.fact:
            case EpisodeRequested(origin="online", episode=episode):
                state.online.append(episode)
            case EpisodeAbandoned(episode=episode) | EpisodeCancelled(episode=episode):
                _drop(state.online, episode)
            case EpisodeJudged() as fact if fact.judge.name == self._judge and fact.episode in state.online:
                _drop(state.online, fact.episode)
                if fact.judgment.outcome != "undecided":
                    self._judged(state, fact.judgment.outcome == "success", recorded.position)
            case UpdateApplied(model=model) as fact if model == POLICY:
                value = fact.metrics.get(MISMATCH)
                if value is not None and isfinite(value):
                    self._updated(state, value, recorded.position)
            case ControlRequested():
                pauses = Pauses(dict(state.pauses))
                pauses.apply(recorded)
                state.pauses = pauses.reasons
            case QueueRepaired() as fact:
                text = f"the work queue {fact.queue} was made anew: {fact.wrong}"
                _begin(state, "queue", recorded.position, text, over="it hands out its events again")
            case RunFinished():
                state.finished = True
            case RunResumed():
                state.finished = False
            case _:
                pass
        return state

    def _judged(self, state: AlertState, success: bool, position: int) -> None:
        stretch = self._limits.stretch
        state.recent.append(success)
        if len(state.recent) > stretch:
            state.block.append(state.recent.pop(0))
        if len(state.block) == stretch:
            state.best = max(state.best or 0, sum(state.block))
            state.block = []
        if state.best is None:
            return
        now = sum(state.recent)
        change = difference(state.best, stretch, now, stretch)
        fell = change.high < 0 and -change.rate >= self._limits.success_fall
        told = f"{now / stretch:.0%} of the last {stretch} judged episodes succeed"
        if fell and state.open("success") is None:
            best = f"the best {stretch} before them came to {state.best / stretch:.0%}"
            interval = f"change {change.rate:+.0%} [{change.low:+.0%}, {change.high:+.0%}]"
            _begin(state, "success", position, f"success falls: {told}, {best}; {interval}")
        elif not fell:
            _end(state, "success", position, f"success is back: {told}")

    def _updated(self, state: AlertState, value: float, position: int) -> None:
        state.mismatches = [*state.mismatches, value][-(UPDATES + EARLIER) :]
        earlier, newest = state.mismatches[:-UPDATES], state.mismatches[-UPDATES:]
        if len(earlier) < UPDATES:
            return
        before = fmean(earlier) if state.before is None else state.before
        limit = max(self._limits.mismatch_least, self._limits.mismatch_times * before)
        mean = fmean(newest)
        told = f"the sampler's mismatch is {mean:.3g} over the last {UPDATES} updates"
        if mean > limit and state.before is None:
            state.before = before
            _begin(state, "mismatch", position, f"mismatch rises: {told}, {before:.3g} before")
        elif mean <= limit and state.before is not None:
            state.before = None
            _end(state, "mismatch", position, f"mismatch is down again: {told}")


def _begin(state: AlertState, kind: str, position: int, text: str, *, over: str = "") -> None:
    """Record an incident. `over`: how it has ended already."""
    incident = Incident(
        id=f"{kind}.{position}",
        kind=kind,
        position=position,
        text=text,
        over=over,
        over_at=position if over else 0,
    )
    state.incidents = [*state.incidents, incident][-KEPT:]


def _end(state: AlertState, kind: str, position: int, text: str) -> None:
    state.incidents = [
        msgspec.structs.replace(one, over=text, over_at=position)
        if one.kind == kind and not one.over
        else one
        for one in state.incidents
    ]


def _drop(names: list[str], name: str) -> None:
    if name in names:
        names.remove(name)
