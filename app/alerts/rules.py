"""What in a run's events somebody should hear about: a pure fold, attached to the run like any other consumer.

An incident begins once and may be over once. Its id names what it is and the position at which it began, so that whoever
folds the log again names it the same.
"""

from math import isfinite
from statistics import fmean

import msgspec

from hindcast.actors.curriculum.pauses import Pauses
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
"""Incidents that the state remembers, the newest: the store of incidents has all of them."""
MISMATCH = "mismatch_kl"
UPDATES = 10
"""Updates whose mean is the present one; what was before is the mean of five times as many."""
EARLIER = 5 * UPDATES


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """From where on something is an incident."""

    stretch: int = 100
    """Judged online episodes that success is taken over."""
    success_fall: float = 0.1
    """Success lost against the best stretch before; the 95 % interval of the difference must lie below 0, too."""
    mismatch_times: float = 3.0
    """Mean mismatch of the last updates against those before …"""
    mismatch_least: float = 0.01
    """… and what it must be at least."""
    lag_s: float = 60.0
    """A consumer that is further behind than this, and falls back, is too slow."""
    still_s: float = 300.0
    """A system that is up, not paused, and has recorded nothing for so long stands still. A consumer that has spent so long
    on one event falls back."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should hear about."""

    id: str
    kind: str
    """`success`, `mismatch`, `queue`, `intruder`, `lag`, `still`."""
    position: int
    """Where it began."""
    text: str
    over: str = ""
    """How it ended; empty: it has not."""
    over_at: int = 0
    """Position at which it ended, where a fold tells it."""


class AlertState(msgspec.Struct, kw_only=True):
    """The fold's state."""

    run: str = ""
    online: list[str] = []
    """Online episodes without a verdict."""
    recent: list[bool] = []
    """Outcomes of the newest stretch."""
    block: list[bool] = []
    """Older outcomes that make no whole stretch yet."""
    best: int | None = None
    """Successes of the best whole stretch before the newest."""
    mismatches: list[float] = []
    before: float | None = None
    """Mean mismatch before the incident that has not ended."""
    pauses: dict[str, str] = {}
    finished: bool = False
    incidents: list[Incident] = []

    def open(self, kind: str) -> Incident | None:
        """The incident of a kind that has not ended."""
        return next((one for one in self.incidents if one.kind == kind and not one.over), None)


class AlertFold:
    """Success that falls, a sampler that drifts away from the learner, a repaired queue, events that an intruder wrote."""

    def __init__(self, thresholds: Thresholds, *, judge: str) -> None:
        """`judge`: whose verdicts count."""
        self._limits = thresholds
        self._judge = judge

    def initial(self) -> AlertState:
        """Nothing has happened."""
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
    """Note an incident. `over`: how it has ended already."""
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
