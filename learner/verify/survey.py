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
    found = Survey()
    async with aclosing(skim(log, family="learner", until=until)) as recordeds:
        async for recorded in recordeds:
            found.take(recorded.position, recorded.fact)
    return found


def usable_seams(
    survey: Survey, blobs: BlobStore, *, first: int, last: int
) -> tuple[list[RecomputationStart], list[str]]:
    """Checkpoints from `first` to `last` whose blobs are present and intact, in order; and messages about damaged ones.

    Reads every blob once, part by part. Released checkpoints are skipped without a message: the log records their release.
    """
    seams, damaged = [], []
    for position, saved in survey.checkpoints.items():
        if first <= position <= last:
            try:
                for part in saved.parts:
                    blobs.get(part)
            except BlobMissing:
                continue
            except BlobCorrupt as error:
                damaged.append(f"the checkpoint of update {saved.update} was not used: {error}")
            else:
                seams.append(RecomputationStart(position=position, update=saved.update))
    return seams, damaged


class LogStretch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a log that is recomputed on its own."""

    begin: RecomputationStart
    until: int
    """Its last position: the next checkpoint, or the end of the verification."""


def cut(begin: RecomputationStart, seams: Sequence[RecomputationStart], *, until: int) -> list[LogStretch]:
    """Split the log from `begin` to `until` into stretches at the given checkpoints."""
    inner = [seam for seam in seams if begin.position < seam.position < until]
    ends = [*(seam.position for seam in inner), until]
    return [LogStretch(begin=seam, until=end) for seam, end in zip([begin, *inner], ends, strict=True)]


def leading_to(wanted: Sequence[tuple[int, int]], seams: Sequence[RecomputationStart]) -> list[LogStretch]:
    """Stretches that recompute updates, each from the last checkpoint before it; two from the same checkpoint are one.

    `wanted`: position of an update, and the position up to which to continue.
    """
    found: dict[int, LogStretch] = {}
    for position, until in sorted(wanted):
        before = [seam for seam in seams if seam.position < position]
        begin = before[-1] if before else BASE
        known = found.get(begin.position)
        found[begin.position] = LogStretch(begin=begin, until=max(until, known.until if known else 0))
    return list(found.values())


def thin(
    stretches: Sequence[LogStretch], survey: Survey, *, processes: int, each: int = 4
) -> list[LogStretch]:
    """Merge stretches: at most about `each` per process, of about the same recorded CPU time.

    Each stretch costs the loading of a checkpoint. Few stretches keep that cost low; enough of them keep all processes busy.
    """
    total = sum(survey.cpu_s_between(one.begin.position, one.until) for one in stretches)
    goal, found = total / (processes * each), list[LogStretch]()
    begin: RecomputationStart | None = None
    for index, one in enumerate(stretches):
        begin = begin or one.begin
        if index == len(stretches) - 1 or survey.cpu_s_between(begin.position, one.until) >= goal:
            found.append(LogStretch(begin=begin, until=one.until))
            begin = None
    return found
