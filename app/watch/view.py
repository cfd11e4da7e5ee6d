"""What is shown of a run at one moment, as plain values: also the JSON of `hindcast watch --json`."""

from typing import Literal

import msgspec

from hindcast.app.attach.consumers import ConsumerRow


class EpisodeView(msgspec.Struct, frozen=True, kw_only=True):
    """An episode under way."""

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
    """Under way, the oldest first."""
    idle: float
    """Share of the window without any episode."""
    idle_s: float
    """For how long it has had none; 0 while it has one."""
    quiet_s: float
    """Since it last recorded anything."""


class RateView(msgspec.Struct, frozen=True, kw_only=True):
    """A success rate with its 95 % interval."""

    of: str
    rate: float
    low: float
    high: float
    n: int


class LearnerView(msgspec.Struct, frozen=True, kw_only=True):
    """The learner. Figures are those of the policy unless named otherwise."""

    updates: int
    beside: dict[str, int]
    """Updates of the other models that it trains, by name."""
    policy_version: int | None
    """Newest published."""
    loss: float | None
    staleness: float | None
    """Mean over the tokens of the last update, in versions."""
    updates_per_minute: float
    busy: float
    """Share of the window from a plan to the end of its updates."""
    quiet_s: float | None
    """Since its last update."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    run: str
    up: bool
    """Whether its system runs."""
    position: int
    at_ns: int
    window_s: float
    """Stretch that shares and rates are taken over."""
    quiet_s: float
    """Since anything was recorded."""
    actors: tuple[ActorView, ...]
    success: tuple[RateView, ...]
    """The last verdicts first, then policy versions, the newest first; training episodes only."""
    learner: LearnerView
    requested: int
    """Episodes that nobody has started."""
    running: int
    unjudged: int
    oldest_unjudged_s: float
    episodes_per_minute: float
    steps_per_second: float
    step_ms: dict[Literal["observe", "generate", "act"], float]
    """Means over the window."""
    agreed: float
    """Share of the window's groups whose members all came out the same: nothing to learn from them."""
    notices: tuple[str, ...]
    """The newest, in words."""
    bottleneck: str
    consumers: tuple[ConsumerRow, ...] = ()
