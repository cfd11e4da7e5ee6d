"""View of a run at one moment, as plain values, and what delays the run in words. Also the JSON of `hindcast watch --json`."""

from typing import Literal

import msgspec

from hindcast.app.attach.consumers import ConsumerRow
from hindcast.app.evaluation.evaluation_lines import TemperatureSuccess

QUIET_S = 30.0
"""Seconds without an event from which this is reported."""
WAITING = 0.5
"""Share of waiting time above which the learner is not the bottleneck."""
JUDGE_S = 10.0
"""Seconds after which a verdict is late."""
IDLE = 0.3
"""Share of idle time above which actors are not the bottleneck."""
AGREED = 0.5
STEP_PARTS = {"observe": "reading the page", "generate": "the policy", "act": "the browser's actions"}


class EpisodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A running episode."""

    episode: str
    family: str
    step: int
    """Steps taken."""
    age_s: float


class ActorView(msgspec.Struct, frozen=True, kw_only=True):
    """One actor."""

    name: str
    policy_version: int | None
    episodes: tuple[EpisodeView, ...]
    """Running episodes, oldest first."""
    idle: float
    """Share of the window without an episode."""
    idle_s: float
    """Seconds without an episode; 0 while it has one."""
    quiet_s: float
    """Seconds since it last recorded an event."""


class RateView(msgspec.Struct, frozen=True, kw_only=True):
    """A success rate with its 95 % interval."""

    of: str
    rate: float
    low: float
    high: float
    n: int


class LearnerView(msgspec.Struct, frozen=True, kw_only=True):
    """The learner. Figures are the policy's unless named otherwise."""

    updates: int
    beside: dict[str, int]
    """Updates of each auxiliary model, by name."""
    policy_version: int | None
    """The newest published version."""
    loss: float | None
    staleness: float | None
    """Mean over the tokens of the last update, in versions."""
    updates_per_minute: float
    busy: float
    """Share of the window between a plan and the end of its updates."""
    quiet_s: float | None
    """Seconds since its last update."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    run: str
    up: bool
    """Whether its system is running."""
    position: int
    at_ns: int
    window_s: float
    """Window over which shares and rates are computed."""
    quiet_s: float
    """Seconds since the last event."""
    actors: tuple[ActorView, ...]
    success: tuple[RateView, ...]
    """The last verdicts, then policy versions, newest first; training episodes only."""
    evaluated: tuple[TemperatureSuccess, ...]
    """Success on held-out tasks in the newest finished evaluation, by temperature; empty: there was none."""
    learner: LearnerView
    requested: int
    """Episodes requested and not started."""
    running: int
    unjudged: int
    oldest_unjudged_s: float
    episodes_per_minute: float
    steps_per_second: float
    step_ms: dict[Literal["observe", "generate", "act"], float]
    """Means over the window."""
    agreed: float
    """Share of the window's groups with equal outcomes, which teach nothing."""
    notices: tuple[str, ...]
    """The newest notices, in words."""
    bottleneck: str
    consumers: tuple[ConsumerRow, ...] = ()


def bottleneck(view: RunView) -> str:
    """The part that the others wait for."""
    if not view.up:
        return f"nothing runs. Run: hindcast start {view.run}"
    if view.quiet_s > QUIET_S:
        return f"nothing has been recorded for {view.quiet_s:.0f} s"
    if not view.actors and not view.learner.updates:
        return "starting: nobody has acted yet"
    waiting = 1 - view.learner.busy
    idle = sum(actor.idle for actor in view.actors) / len(view.actors) if view.actors else 1.0
    if waiting < WAITING:
        return f"the learner is the bottleneck: it computes {view.learner.busy:.0%} of the time, actors idle {idle:.0%}"
    said = f"the learner waits {waiting:.0%} of the time: "
    if view.oldest_unjudged_s > JUDGE_S:
        return (
            f"{said}the judge is the bottleneck, {view.unjudged} episodes want a verdict, one for "
            f"{view.oldest_unjudged_s:.0f} s"
        )
    taught = f"; {view.agreed:.0%} of the groups agreed and taught nothing" if view.agreed > AGREED else ""
    if idle > IDLE and view.requested == 0:
        return f"{said}actors idle {idle:.0%}, the curriculum asks for too little{taught}"
    return f"{said}actors are the bottleneck{_where(view)}{taught}"


def _where(view: RunView) -> str:
    """The largest part of an actor's step."""
    whole = sum(view.step_ms.values())
    if not whole:
        return ""
    part = max(view.step_ms, key=lambda name: view.step_ms[name])
    return f" ({view.step_ms[part] / whole:.0%} of a step is {STEP_PARTS[part]})"
