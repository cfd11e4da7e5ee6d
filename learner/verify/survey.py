"""A quick read of the learner's events before anything is folded: what to verify, and where recomputation can start."""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from hindcast.core.domain.arrays import unpack_positions
from hindcast.core.errors import BlobCorrupt, BlobMissing, ForeignLog
from hindcast.core.rl.combined_state import POLICY
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    SamplesSwept,
    UpdateApplied,
    UpdateSkipped,
)
from hindcast.events.envelope import Fact
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import skim
from hindcast.storage.blobs.store import BlobStore


@dataclass(slots=True)
class Claims:
    """Recorded when a batch was planned; must hold for the log as it is now."""

    points: set[int] = field(default_factory=set)
    """Positions that plans were made at."""
    swept_at: set[int] = field(default_factory=set)
    """Positions that sweeps were decided at."""
    steps: dict[int, bytes] = field(default_factory=dict)
    """By position of a trained step (or of a verdict or relabel with a reading): first 8 bytes of the sha256 of its stored bytes."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Rewards of the episodes that the policy was trained on."""

    def take(self, plan: BatchPlanned) -> None:
        """Add the claims of one plan; the first claim about an event counts."""
        self.points.add(plan.as_of)
        for index, position in enumerate(unpack_positions(plan.positions).tolist()):
            self.steps.setdefault(position, plan.sample_digests[8 * index : 8 * index + 8])
        for planned in plan.episodes if plan.model == POLICY else ():
            self.rewards.setdefault(planned.episode, planned.reward)


class RecomputationStart(msgspec.Struct, frozen=True, kw_only=True):
    """A place where recomputation can start."""

    position: int
    """Position of a `checkpoint.saved`; 0: the base weights."""
    update: int
    """Optimizer steps up to there."""


BASE = RecomputationStart(position=0, update=0)


@dataclass(slots=True)
class Survey:
    """Training events of a log."""

    claims: Claims = field(default_factory=Claims)
    updates: list[int] = field(default_factory=list)
    """Positions of updates, applied or skipped."""
    cpu_s: list[float] = field(default_factory=lambda: [0.0])
    """Cumulative recorded CPU seconds: before the first update, up to the first, and so on."""
    checkpoints: dict[int, CheckpointSaved] = field(default_factory=dict)
    """Saved checkpoints by position."""

    def take(self, position: int, fact: Fact) -> None:
        """Take in one event of the learner."""
        match fact:
            case BatchPlanned():
                self.claims.take(fact)
            case SamplesSwept(as_of=int(as_of)):
                self.claims.swept_at.add(as_of)
            case UpdateApplied() | UpdateSkipped():
                cpu_ms = fact.cpu_ms if isinstance(fact, UpdateApplied) else 0.0
                self.updates.append(position)
                self.cpu_s.append(self.cpu_s[-1] + cpu_ms / 1000)
            case CheckpointSaved():
                self.checkpoints[position] = fact
            case _:
                pass

    def updates_between(self, after: int, until: int) -> int:
        """Number of updates after one position, up to another."""
        return bisect_right(self.updates, until) - bisect_right(self.updates, after)

    def cpu_s_between(self, after: int, until: int) -> float:
        """Their recorded CPU seconds."""
        return self.cpu_s[bisect_right(self.updates, until)] - self.cpu_s[bisect_right(self.updates, after)]


async def survey(log: EventLog, *, until: int) -> Survey:
    """Read the learner's events up to a position. Damaged ones are left to the readers that follow.

    Raises:
        ForeignLog: the log's first events are not here.
    """
    first = (await log.identity()).first
    if first > 1:
        raise ForeignLog(
            f"the log of run {log.run} begins at position {first} here: its earlier events were moved to an archive. "
            "Recomputation needs them. Name the archive's folder instead of the run."
        )
    result = Survey()
    async with aclosing(skim(log, family="learner", until=until)) as events:
        async for event in events:
            result.take(event.position, event.fact)
    return result


def usable_checkpoints(
    survey: Survey, blobs: BlobStore, *, first: int, last: int
) -> tuple[list[RecomputationStart], list[str]]:
    """Checkpoints from `first` to `last` whose blobs are present and intact, in order; and messages about damaged ones.

    Reads every blob once, in chunks. Released checkpoints are skipped without a message: the log records their release.
    """
    starts, damaged = [], []
    for position, checkpoint in survey.checkpoints.items():
        if first <= position <= last:
            try:
                for blob in checkpoint.parts:
                    blobs.checked_path(blob)
            except BlobMissing:
                continue
            except BlobCorrupt as error:
                damaged.append(f"the checkpoint of update {checkpoint.update} was not used: {error}")
            else:
                starts.append(RecomputationStart(position=position, update=checkpoint.update))
    return starts, damaged


class LogStretch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a log that is recomputed on its own."""

    begin: RecomputationStart
    until: int
    """Its last position: the next checkpoint, or the end of the verification."""


def cut(start: RecomputationStart, starts: Sequence[RecomputationStart], *, until: int) -> list[LogStretch]:
    """Split the log from `start` to `until` into stretches at the given checkpoints."""
    inner_starts = [inner for inner in starts if start.position < inner.position < until]
    ends = [*(inner.position for inner in inner_starts), until]
    return [
        LogStretch(begin=begin, until=end) for begin, end in zip([start, *inner_starts], ends, strict=True)
    ]


def leading_to(updates: Sequence[tuple[int, int]], starts: Sequence[RecomputationStart]) -> list[LogStretch]:
    """Stretches that recompute updates, each from the last checkpoint before it; two from the same checkpoint are one.

    `updates`: position of an update, and the position up to which to continue.
    """
    stretches: dict[int, LogStretch] = {}
    for position, until in sorted(updates):
        before = [candidate for candidate in starts if candidate.position < position]
        start = before[-1] if before else BASE
        merged = stretches.get(start.position)
        stretches[start.position] = LogStretch(begin=start, until=max(until, merged.until if merged else 0))
    return list(stretches.values())


def thin(
    stretches: Sequence[LogStretch], survey: Survey, *, processes: int, each: int = 4
) -> list[LogStretch]:
    """Merge stretches: at most about `each` per process, of about the same recorded CPU time.

    Each stretch costs the loading of a checkpoint. Few stretches keep that cost low; enough of them keep all processes busy.
    """
    total = sum(survey.cpu_s_between(stretch.begin.position, stretch.until) for stretch in stretches)
    goal, merged = total / (processes * each), list[LogStretch]()
    start: RecomputationStart | None = None
    for index, stretch in enumerate(stretches):
        start = start or stretch.begin
        if index == len(stretches) - 1 or survey.cpu_s_between(start.position, stretch.until) >= goal:
            merged.append(LogStretch(begin=start, until=stretch.until))
            start = None
    return merged
