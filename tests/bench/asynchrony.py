"""What acting and learning at the same time is worth: the same number of updates as with our own lock-step mode.

Lock-step is the same code with `learner.max_staleness=0`. The admission rule (`core.rl.staleness`) then leaves room for the
episodes of one batch and no more: once they are there nothing is begun until the batch's weights are out, and the
requests after that name them as the least version, so that an actor adopts them first. Act, stop, train, publish, adopt,
act again. That it was so in the run that was measured is read from its log (`Pace.overlapped`).

Time runs from the first request to the update asked for: starting processes is not in it.
"""

from collections.abc import AsyncIterable
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.asynchrony_run import run_system
from hindcast.app.runs.runs import open_run
from hindcast.core.errors import HindcastError
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.envelope import Recorded
from hindcast.events.log.reader import read

ONLINE = "online"
ASYNCHRONOUS: tuple[str, ...] = ()
"""As the recipe says."""
LOCK_STEP = ("learner.max_staleness=0",)


class NotComparable(HindcastError):
    """A run did not do what its mode means, so that its time says nothing."""


class Pace(msgspec.Struct, kw_only=True):
    """How a run came to its updates. Folded from its log."""

    wanted: int
    """Updates."""
    began_ns: int = 0
    ended_ns: int = 0
    updates: int = 0
    episodes: int = 0
    """Ended before the last of them."""
    overlapped: int = 0
    """Episodes begun between the plan of a batch and its weights."""
    learning_ms: float = 0.0
    """Time in updates."""
    training: bool = False
    """A batch is planned and its weights are not out."""

    @property
    def done(self) -> bool:
        """Whether the last update is there."""
        return self.updates >= self.wanted

    @property
    def wall_s(self) -> float:
        """From the first request to the last update."""
        return (self.ended_ns - self.began_ns) / 1e9

    @property
    def bound(self) -> float:
        """How many times faster it could be at most if acting and learning did not share cores; of a run in lock-step.

        (T_act + T_learn) / max(T_act, T_learn); all time outside updates counts as acting.
        """
        learning_s = self.learning_ms / 1000
        return self.wall_s / max(learning_s, self.wall_s - learning_s)

    def apply(self, recorded: Recorded) -> "Pace":
        """One more event; changes and returns the same object. Nothing counts after the last update."""
        if self.done:
            return self
        match recorded.fact:
            case EpisodeRequested(origin=origin) if origin == ONLINE and not self.began_ns:
                self.began_ns = recorded.envelope.occurred_ns
            case EpisodeStarted():
                self.overlapped += self.training
            case EpisodeEnded():
                self.episodes += 1
            case BatchPlanned():
                self.training = True
            case WeightsPublished(model="policy"):
                self.training = False
            case UpdateApplied(model="policy") as fact:
                self.updates += 1
                self.learning_ms += fact.duration_ms
                self.ended_ns = recorded.envelope.occurred_ns
        return self

    def describe(self) -> str:
        """In words."""
        return (
            f"{self.episodes} episodes for {self.updates} updates in {self.wall_s:.0f} s, {self.learning_ms / 1000:.0f} s "
            f"of it in updates, {self.overlapped} episodes begun while a batch was trained on"
        )


async def fold_pace(events: AsyncIterable[Recorded], *, updates: int) -> Pace:
    """The pace of a run up to so many updates."""
    pace = Pace(wanted=updates)
    async for recorded in events:
        pace.apply(recorded)
        if pace.done:
            break
    return pace


async def measure_pace(
    folder: Path, *, updates: int, latency_ms: float, lock_step: bool, overrides: tuple[str, ...]
) -> Pace:
    """Start a whole system, let it come to so many updates, and read how it went.

    Raises:
        NotComparable: it came to fewer updates, or acted while it trained though it was to be in lock-step.
        SystemEnded: it did not come to its end.

    """
    mode = LOCK_STEP if lock_step else ASYNCHRONOUS
    with TemporaryDirectory(prefix="lock-step-" if lock_step else "asynchronous-", dir=folder) as where:
        home = Path(where)
        await run_system(
            home, updates=updates, overrides=(f"actors.page_latency_ms={latency_ms}", *overrides, *mode)
        )
        async with (
            open_run(home=home).connect_log() as log,
            aclosing(read(log)) as events,
        ):
            pace = await fold_pace(events, updates=updates)
    if not pace.done:
        raise NotComparable(f"the run came to {pace.updates} of {updates} updates")
    if lock_step and pace.overlapped:
        raise NotComparable(
            f"{pace.overlapped} episodes were begun while a batch was trained on: that is no lock-step. Lost episodes "
            "leave room for a further group; see why episodes were abandoned, and measure again."
        )
    return pace
