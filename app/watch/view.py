"""View of a run at one moment, as plain values; also the JSON of `hindcast watch --json`."""

from typing import Literal

import msgspec

from hindcast.app.attach.consumers import ConsumerRow


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
