"""Recomputes a run from its log and reports whether every number agrees.

    log ──survey──> plans, updates, checkpoints ──> stretches to be recomputed
     ├──Verifier───────> contiguity, hash chains, plans, sweeps: from the first event on, in this process
     └──Recomputers────> updates, weights, checkpoints: stretch by stretch, here or in processes of their own

The first divergence by position counts. Produces a report only. Invariant 9, no effects in replay: it appends nothing and
writes no blob.
Not covered: whether a sampler would generate the same tokens again (a served model need not), and blobs of pages.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from hindcast.core.errors import CorruptEvent, ForeignLog, HindcastError, UnknownVersion
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read
from hindcast.learner.distributed.ranks import is_emulated
from hindcast.learner.numerics import other_accelerator
from hindcast.learner.training import MakeTrainer, Training
from hindcast.learner.verify.comparison import Deviation
from hindcast.learner.verify.diagnosis import Divergence, machine_now
from hindcast.learner.verify.log_recomputer import LogRecomputer, Recomputer, StretchReport, recompute_all
from hindcast.learner.verify.machines import LeftOut, RepeatableUpdates, Window, beginning, stretches_for
from hindcast.learner.verify.plan_verifier import Verifier, find_damage
from hindcast.learner.verify.survey import (
    BASE,
    LogStretch,
    RecomputationStart,
    Survey,
    cut,
    survey,
    thin,
    usable_checkpoints,
)
from hindcast.storage.blobs.store import BlobStore

Progress = Callable[[int, int], None]
"""Called with the number of updates recomputed so far, and of all to be recomputed."""


class InexactRanks(HindcastError):
    """A run's updates cannot be recomputed bit for bit, since its processes added in an order of their own."""


class OtherDevice(HindcastError):
    """No update can be recomputed bit for bit here: they were computed on another kind of device, which rounds differently."""


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a verification."""

    run: str
    events: int
    """Events checked; up to the divergence if there is one."""
    updates: int
    """Updates recomputed and equal, including skipped ones; with a tolerance: recomputed and compared."""
    digests: int
    """Those whose recorded digest of weights and optimizer state came out the same. Of the others every reported
    number and the digest of the inputs did (`learner.digest_every`)."""
    weights: int
    """Published versions whose digest agrees."""
    checkpoints: int
    identical: bool
    """Whether every recomputed bit is as recorded; see `left_out` for what was not recomputed."""
    first_divergence: Divergence | None
    recorded_on: Fingerprint | None
    """Fingerprint of the latest start of the run."""
    verified_on: Fingerprint | None
    wall_s: float
    cpu_s: float
    """CPU seconds of all processes, after they had loaded their code."""
    until: int
    """Position up to which the run was verified."""
    stretches: tuple[StretchReport, ...]
    """Recomputed stretches, in order; of other events chains, order and plans were checked, and no number was recomputed."""
    left_out: tuple[LeftOut, ...]
    """Updates that were computed on a device that this machine lacks, or that follow from them without a kept checkpoint."""
    processes: int
    recorded_cpu_s: float
    """Recorded CPU seconds of the updates to be recomputed."""
    cpu_ratio: float | None
    """`cpu_s` over `recorded_cpu_s`; None if nothing was recorded."""
    notices: tuple[str, ...]
    """Messages, such as about damaged checkpoints that were not used."""
    tolerance: float | None
    within_tolerance: bool | None
    """None: every bit had to agree."""
    deviations: tuple[Deviation, ...]
    """With a tolerance: deviation of each update."""


async def verify(
    log: EventLog,
    blobs: BlobStore,
    *,
    policy: Path,
    code_rev: str = "",
    since: int = 0,
    until: int | None = None,
    tolerance: float | None = None,
    only: Sequence[tuple[int, int]] | None = None,
    recomputers: Sequence[Recomputer] = (),
    together: bool = False,
    progress: Progress = lambda _done, _all: None,
    make_trainer: MakeTrainer = Training,
) -> VerifyReport:
    """Recompute the run up to `until`, or up to the current end of its log. Best in a fresh process.

    `policy`: folder that the run's base weights belong to. `code_rev`: revision of the running code. Numbers are recomputed
    from the newest usable checkpoint at or before position `since`, 0: from the base weights. `only`: recompute these
    updates alone, each from the checkpoint before it (see `learner.verify.survey.leading_to`). Chains and plans are always checked from the first event. `recomputers` share the stretches between checkpoints; if none, this process recomputes all.
    The caller closes them. `together`: `make_trainer` computes in as many processes as the run's learner did, whose bits it then
    repeats.

    Raises:
        InexactRanks, OtherDevice: numbers can only be compared with a tolerance.
        ForeignLog, UnknownVersion, BlobMissing, ModelFileError, PluginError: nothing can be said about this log here.
    """
    started_at, cpu_started_at = time.perf_counter(), time.process_time()
    until = (await log.identity()).last if until is None else until
    surveyed = await survey(log, until=until)
    verifier, divergence = await _check_events(log, surveyed, until=until, code_rev=code_rev)
    plan = _Plan(stretches=[], notices=[], left_out=())
    inexact = "" if together else _inexact(verifier.settings, run=log.run)
    if tolerance is None and surveyed.updates and inexact:
        if divergence is None:
            raise InexactRanks(inexact)
        plan.notices.append(inexact)
    else:
        plan = await asyncio.to_thread(
            _plan,
            surveyed,
            blobs,
            verifier=verifier,
            since=since,
            until=until if divergence is None else divergence.position - 1,
            tolerance=tolerance,
            processes=len(recomputers),
            only=only,
        )
        if divergence is None:
            _require_repeatable(plan, surveyed, run=log.run)
    own_recomputers: list[Recomputer] = []
    if not recomputers:
        own_recomputers = [
            LogRecomputer(
                log,
                blobs,
                policy=policy,
                code_rev=code_rev,
                tolerance=tolerance,
                make_trainer=make_trainer,
            )
        ]
    total = sum(surveyed.updates_between(part.begin.position, part.until) for part in plan.stretches)
    finished = 0

    def updated() -> None:
        nonlocal finished
        finished += 1
        progress(finished, total)

    try:
        reports = await recompute_all(plan.stretches, recomputers or own_recomputers, updated=updated)
    finally:
        for recomputer in own_recomputers:
            await recomputer.close()
    divergences = [
        divergence,
        *(candidate for report in reports for candidate in (report.divergence, report.beyond)),
    ]
    first = min(
        (candidate for candidate in divergences if candidate is not None),
        key=lambda candidate: candidate.position,
        default=None,
    )
    elsewhere = sum(report.cpu_s for report in reports) if any(r.elsewhere for r in recomputers) else 0.0
    cpu_s = time.process_time() - cpu_started_at + elsewhere
    recorded_cpu_s = sum(surveyed.cpu_s_between(r.stretch.begin.position, r.stretch.until) for r in reports)
    deviations = tuple(deviation for report in reports for deviation in report.deviations)
    witness = verifier.witness()
    return VerifyReport(
        run=log.run,
        events=verifier.position if first is None else min(verifier.position, first.position),
        updates=sum(report.updates for report in reports),
        digests=sum(report.digests for report in reports),
        weights=sum(report.weights for report in reports),
        checkpoints=sum(report.checkpoints for report in reports),
        identical=first is None and not any(deviation.largest for deviation in deviations),
        first_divergence=first,
        recorded_on=witness.machine_then,
        verified_on=witness.machine_now,
        wall_s=time.perf_counter() - started_at,
        cpu_s=cpu_s,
        until=until,
        stretches=tuple(reports),
        processes=max(1, len(recomputers)),
        recorded_cpu_s=recorded_cpu_s,
        cpu_ratio=cpu_s / recorded_cpu_s if recorded_cpu_s else None,
        left_out=plan.left_out,
        notices=tuple(plan.notices),
        tolerance=tolerance,
        within_tolerance=None if tolerance is None else first is None,
        deviations=deviations,
    )


def _inexact(settings: LearnerSettings, *, run: str) -> str:
    """Why one process cannot repeat the bits of the run's updates, and what it can do; empty: it can."""
    if settings.processes == 1 or is_emulated(settings):
        return ""
    return (
        f"no number of run {run} was recomputed: {settings.processes} processes added its gradients in an order that is not "
        "recorded (learner.exact_ranks = false), so its updates can only be verified within rounding. Run: hindcast verify "
        f"{run} --tolerance 1e-4, or, where so many processes fit, hindcast verify {run} --ranks"
    )


def _require_repeatable(plan: "_Plan", surveyed: Survey, *, run: str) -> None:
    """Raises OtherDevice if updates were left out, and none is left to be recomputed."""
    remaining = sum(surveyed.updates_between(part.begin.position, part.until) for part in plan.stretches)
    if plan.left_out and not remaining:
        raise OtherDevice(
            f"no number of run {run} was recomputed: {'; '.join(part.reason for part in plan.left_out)}. Verify them where they "
            f"were computed, or within rounding. Run: hindcast verify {run} --tolerance 1e-2"
        )


async def _check_events(
    log: EventLog, surveyed: Survey, *, until: int, code_rev: str
) -> tuple[Verifier, Divergence | None]:
    """Run all checks that need no model."""
    verifier = Verifier(claims=surveyed.claims, code_rev=code_rev)
    divergence: Divergence | None = None
    try:
        async with aclosing(read(log, after=0, until=until, strict=True)) as events:
            async for event in events:
                divergence = verifier.take(event)
                if divergence is not None:
                    break
    except (CorruptEvent, UnknownVersion, ForeignLog) as error:
        divergence = await find_damage(log, after=verifier.position, chains=verifier.chains, error=error)
        if divergence is None:
            raise
    if not verifier.started and divergence is None:
        raise ForeignLog(f"the log of run {log.run} holds no run.started: there is nothing to verify")
    return verifier, divergence


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is recomputed."""

    stretches: list[LogStretch]
    notices: list[str]
    left_out: tuple[LeftOut, ...]


def _plan(
    surveyed: Survey,
    blobs: BlobStore,
    *,
    verifier: Verifier,
    since: int,
    until: int,
    tolerance: float | None,
    processes: int,
    only: Sequence[tuple[int, int]] | None,
) -> _Plan:
    """Divide what is recomputed into stretches, without the updates that this machine cannot repeat."""

    def obstacle(machine: Fingerprint) -> str:
        return (
            other_accelerator(machine, machine_now(machine, verifier.settings)) if tolerance is None else ""
        )

    repeatable = RepeatableUpdates(verifier.machines.ranges(), obstacle, until=until)
    windows, notices = repeatable.windows(), list[str]()
    if only is not None:
        checkpoints, notices = usable_checkpoints(surveyed, blobs, first=1, last=until)
        stretches = stretches_for([update for update in only if update[1] <= until], checkpoints, windows)
        left_out = repeatable.left_out(
            stretches, wanted=lambda position: any(first <= position <= last for first, last in only)
        )
        return _Plan(stretches=stretches, notices=notices, left_out=tuple(left_out))
    start = BASE
    if since > 0:
        checkpoints, notices = usable_checkpoints(surveyed, blobs, first=1, last=since)
        start = checkpoints[-1] if checkpoints else BASE
    checkpoints = list[RecomputationStart]()
    if until > start.position and (processes or tolerance is not None or any(w.after for w in windows)):
        checkpoints, damaged = usable_checkpoints(surveyed, blobs, first=start.position + 1, last=until - 1)
        notices = [*notices, *damaged]
    stretches = [
        stretch
        for window in windows
        for stretch in _divide(window, start, checkpoints, surveyed, processes=processes, tolerance=tolerance)
    ]
    left_out = repeatable.left_out(stretches, wanted=lambda position: position > start.position)
    return _Plan(stretches=stretches, notices=notices, left_out=tuple(left_out))


def _divide(
    window: Window,
    start: RecomputationStart,
    checkpoints: Sequence[RecomputationStart],
    surveyed: Survey,
    *,
    processes: int,
    tolerance: float | None,
) -> list[LogStretch]:
    """Stretches of one window. With a tolerance every checkpoint begins a stretch, so that deviations do not accumulate."""
    begin = beginning(window, start, checkpoints)
    if begin is None or begin.position >= window.until:
        return []
    if tolerance is not None:
        return cut(begin, checkpoints, until=window.until)
    if processes == 0:
        return [LogStretch(begin=begin, until=window.until)]
    return thin(cut(begin, checkpoints, until=window.until), surveyed, processes=processes)


__all__ = ["Divergence", "VerifyReport", "verify"]
