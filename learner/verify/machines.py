"""Where a run's updates were computed, and which of them this machine can repeat bit for bit.

A recorded fingerprint holds for the updates after it, until the next one. Updates of another kind of device have other last
bits, so recomputing them here would say nothing about them. What another processor or library changes is not known
beforehand: such updates are recomputed, and a difference is explained by what differs (`learner.verify.diagnosis`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from hindcast.core.rl.combined_state import POLICY
from hindcast.events.catalogue import (
    LearnerStarted,
    RunForked,
    RunResumed,
    RunStarted,
    UpdateApplied,
    UpdateSkipped,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.envelope import Fact
from hindcast.learner.verify.survey import LogStretch, RecomputationStart, leading_to

NO_CHECKPOINT = (
    "follow from updates of another device, and no checkpoint between them is kept (learner.keep_checkpoints)"
)


class UpdatePlace(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded update."""

    position: int
    name: str
    """Its number; of an auxiliary model also the model."""


class UpdateRange(msgspec.Struct, frozen=True, kw_only=True):
    """Successive updates that were computed on one machine."""

    machine: Fingerprint
    since: int
    """Position of the event that recorded the machine."""
    updates: tuple[UpdatePlace, ...]


@dataclass(slots=True)
class MachineHistory:
    """A fold of a log: the machine of every update."""

    machine: Fingerprint | None = None
    """The machine in force."""
    _since: int = 0
    _ranges: list[tuple[Fingerprint, int, list[UpdatePlace]]] = field(default_factory=list)

    def take(self, position: int, fact: Fact) -> None:
        """Take in one event."""
        match fact:
            case RunStarted() | RunResumed() | LearnerStarted():
                self._follow(position, fact.fingerprint)
            case RunForked(start=RunStarted() as start):
                self._follow(position, start.fingerprint)
            case UpdateApplied() | UpdateSkipped() if self.machine is not None:
                name = str(fact.update) if fact.model == POLICY else f"{fact.update} of the {fact.model}"
                if not self._ranges or self._ranges[-1][0] != self.machine:
                    self._ranges.append((self.machine, self._since, []))
                self._ranges[-1][2].append(UpdatePlace(position=position, name=name))
            case _:
                pass

    def _follow(self, position: int, machine: Fingerprint) -> None:
        if machine != self.machine:
            self.machine, self._since = machine, position

    def ranges(self) -> list[UpdateRange]:
        """All updates so far, in order."""
        return [
            UpdateRange(machine=machine, since=since, updates=tuple(updates))
            for machine, since, updates in self._ranges
        ]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Successive updates that were not recomputed."""

    updates: int
    first: int
    """Position of the first of them."""
    last: int
    reason: str
    """In words, beginning with the updates."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a log whose updates this machine can repeat."""

    after: int
    """Position of the last update before it that this machine cannot repeat; 0: there is none."""
    until: int
    """Its last position."""


class RepeatableUpdates:
    """Which updates of a log this machine can repeat."""

    def __init__(
        self, ranges: Sequence[UpdateRange], obstacle: Callable[[Fingerprint], str], *, until: int
    ) -> None:
        """`obstacle`: why this machine cannot repeat the updates of another; empty: it can."""
        self._until = until
        self._ranges = [(part, obstacle(part.machine)) for part in ranges]

    def windows(self) -> list[Window]:
        """The parts that it can repeat, in order."""
        windows, after = list[Window](), 0
        for part, obstacle in self._ranges:
            if obstacle:
                windows.append(Window(after=after, until=min(part.since - 1, self._until)))
                after = part.updates[-1].position
        windows.append(Window(after=after, until=self._until))
        return [window for window in windows if window.after < window.until]

    def left_out(
        self, stretches: Sequence[LogStretch], *, wanted: Callable[[int], bool]
    ) -> Iterator[LeftOut]:
        """Updates at wanted positions that no stretch recomputes."""
        for part, obstacle in self._ranges:
            missing = [
                update
                for update in part.updates
                if update.position <= self._until
                and wanted(update.position)
                and not any(one.begin.position < update.position <= one.until for one in stretches)
            ]
            if missing:
                yield LeftOut(
                    updates=len(missing),
                    first=missing[0].position,
                    last=missing[-1].position,
                    reason=f"{_in_words(missing)} {obstacle or NO_CHECKPOINT}",
                )


def beginning(
    window: Window, start: RecomputationStart, checkpoints: Sequence[RecomputationStart]
) -> RecomputationStart | None:
    """The earliest place in a window to begin with, `start` or a checkpoint after it; None: no checkpoint there is kept."""
    if start.position >= window.after:
        return start
    return next(
        (checkpoint for checkpoint in checkpoints if window.after <= checkpoint.position < window.until), None
    )


def stretches_for(
    updates: Sequence[tuple[int, int]], checkpoints: Sequence[RecomputationStart], windows: Sequence[Window]
) -> list[LogStretch]:
    """Stretches that recompute updates as `leading_to` does, each within a window; those that no checkpoint leads to are left out."""
    stretches: list[LogStretch] = []
    for window in windows:
        inside = [
            checkpoint for checkpoint in checkpoints if window.after <= checkpoint.position < window.until
        ]
        first = 0 if window.after == 0 else inside[0].position if inside else window.until
        reachable = [
            (position, min(until, window.until))
            for position, until in updates
            if first < position <= window.until
        ]
        stretches += leading_to(reachable, inside)
    return stretches


def _in_words(updates: Sequence[UpdatePlace]) -> str:
    """Such as `updates 3 to 8 (positions 120 to 164)`."""
    first, last = updates[0], updates[-1]
    if first == last:
        return f"update {first.name} (position {first.position})"
    return f"updates {first.name} to {last.name} (positions {first.position} to {last.position})"
