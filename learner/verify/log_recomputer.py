"""Recomputes stretches of a log: updates, weights and checkpoints, from a checkpoint or the base weights on.

A recomputer folds the log from its first event, loads the state that its stretch begins with, recomputes up to the
stretch's end, and compares. Several recomputers, in processes of their own, take successive stretches in order, the next one
to the first that is free. A stretch ends at the state of the checkpoint that the next one begins with, so together they cover
everything up to the first divergence; only stretches after it are left out.
Invariant 9, no effects in replay: nothing is appended, no blob is written.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Protocol, TypeVar

import msgspec

from hindcast.core.errors import ForeignLog, HindcastError
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.numerics import configure
from hindcast.learner.training import MakeTrainer, Training
from hindcast.learner.verify.comparison import Deviation
from hindcast.learner.verify.diagnosis import Divergence
from hindcast.learner.verify.recomputation import HEAVY, Recomputation
from hindcast.learner.verify.survey import LogStretch
from hindcast.storage.blobs.store import BlobStore

T = TypeVar("T")


class StretchReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of recomputing one stretch of a log."""

    stretch: LogStretch
    updates: int
    """Updates recomputed and equal, including skipped ones; with a tolerance: recomputed."""
    digests: int
    """Those whose recorded digest of weights and optimizer state came out the same (`learner.digest_every`)."""
    weights: int
    checkpoints: int
    cpu_s: float
    divergence: Divergence | None
    """First divergence; nothing was recomputed after it."""
    beyond: Divergence | None
    """With a tolerance: the first place where numbers deviate more."""
    deviations: tuple[Deviation, ...]
    """With a tolerance: of each update, in order."""


class Recomputer(Protocol):
    """Computes stretches again, one after the other."""

    @property
    def elsewhere(self) -> bool:
        """Whether it computes in a process of its own."""

    async def recompute(self, stretch: LogStretch, *, updated: Callable[[], None]) -> StretchReport:
        """Recompute a stretch up to its end or the first divergence; calls `updated` after each update.

        Raises:
            HindcastError: it cannot be computed here.
        """

    async def close(self) -> None:
        """End it, even during a computation."""


class LogRecomputer:
    """Recomputes stretches of a log in this process. Stretches in order read the log once."""

    def __init__(
        self,
        log: EventLog,
        blobs: BlobStore,
        *,
        policy: Path,
        code_rev: str,
        tolerance: float | None,
        make_trainer: MakeTrainer = Training,
    ) -> None:
        """`policy`: folder that the run's base weights belong to."""
        self._log = log
        self._blobs = blobs
        self._policy = policy
        self._code_rev = code_rev
        self._tolerance = tolerance
        self._make_trainer = make_trainer
        self._stop = Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recomputing")
        """One thread computes everything: torch's number of threads per operation is set per thread."""
        self._begin_anew()

    @property
    def elsewhere(self) -> bool:
        """See `Recomputer.elsewhere`."""
        return False

    def _begin_anew(self) -> None:
        self._buffer = ReplayBuffer()
        self._state = self._buffer.initial()
        self._threads = 0
        self._reading: AsyncGenerator[Recorded, None] | None = None
        self._latest: Recorded | None = None
        self._recomputation = Recomputation(
            self._blobs,
            policy=self._policy,
            code_rev=self._code_rev,
            tolerance=self._tolerance,
            stop=self._stop,
            make_trainer=self._make_trainer,
        )

    async def recompute(self, stretch: LogStretch, *, updated: Callable[[], None]) -> StretchReport:
        """See `Recomputer.recompute`."""
        cpu_began = time.process_time()
        if self._state.position > stretch.begin.position:
            await self._leave()
            self._begin_anew()
        if self._reading is None:
            self._reading = read(self._log, after=0, strict=True)
        recomputation = self._recomputation
        recomputation.count_anew()
        divergence = await self._recompute(stretch, updated) if stretch.until > self._state.position else None
        return StretchReport(
            stretch=stretch,
            updates=recomputation.updates,
            digests=recomputation.digests,
            weights=recomputation.weights,
            checkpoints=recomputation.checkpoints,
            cpu_s=time.process_time() - cpu_began,
            divergence=divergence,
            beyond=recomputation.beyond,
            deviations=tuple(recomputation.deviations),
        )

    async def _recompute(self, stretch: LogStretch, updated: Callable[[], None]) -> Divergence | None:
        assert self._reading is not None
        if self._latest is not None and self._latest.position == stretch.begin.position:
            divergence = await self._check(self._latest, stretch)  # the end of the previous stretch
            if divergence is not None:
                return divergence
        async for recorded in self._reading:
            before = self._recomputation.updates
            self._state = self._buffer.apply(self._state, recorded)
            self._latest = recorded
            await self._follow_threads()
            divergence = await self._check(recorded, stretch)
            if self._recomputation.updates > before:
                updated()
            if divergence is not None or recorded.position >= stretch.until:
                return divergence
        raise ForeignLog(
            f"the log of run {self._log.run} ends at position {self._state.position}, but is to be recomputed up to "
            f"{stretch.until}: it lost events meanwhile."
        )

    async def _follow_threads(self) -> None:
        """Use the learner's number of threads, which may differ between starts of a run."""
        machine = self._state.fingerprint
        if machine is not None and machine.threads != self._threads:
            self._threads = machine.threads
            await self._compute(partial(configure, machine.threads))

    async def _check(self, recorded: Recorded, stretch: LogStretch) -> Divergence | None:
        if self._state.started is None:
            raise ForeignLog("the log does not begin with run.started: the base weights are not named")
        if recorded.position == stretch.begin.position:
            return await self._compute(partial(self._recomputation.enter, recorded, self._state))
        if recorded.position > stretch.begin.position and isinstance(recorded.fact, HEAVY):
            return await self._compute(partial(self._recomputation.take, recorded, self._state))
        return None

    async def _compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _leave(self) -> None:
        if self._reading is not None:
            await self._reading.aclose()

    async def close(self) -> None:
        """See `Recomputer.close`. A running computation ends after its forward pass."""
        self._stop.set()
        await self._leave()
        self._thread.shutdown(wait=False, cancel_futures=True)


async def recompute_all(
    stretches: Sequence[LogStretch], recomputers: Sequence[Recomputer], *, updated: Callable[[], None]
) -> list[StretchReport]:
    """Recompute all stretches that have no divergence before them; returns their reports, in order.

    Raises:
        HindcastError: a stretch could not be recomputed.
    """
    sharing = _Sharing(stretches, updated)
    try:
        async with asyncio.TaskGroup() as group:
            for number, recomputer in enumerate(recomputers):
                task = group.create_task(sharing.work(recomputer), name=f"recomputer {number}")
                sharing.busy[task] = None
    except* HindcastError as failed:
        raise failed.exceptions[0] from None
    return sharing.covered()


class _Sharing:
    """Which recomputer has which stretch."""

    def __init__(self, stretches: Sequence[LogStretch], updated: Callable[[], None]) -> None:
        self.busy: dict[asyncio.Task[None], LogStretch | None] = {}
        self._waiting = list(reversed(stretches))
        self._reports: list[StretchReport] = []
        self._updated = updated

    async def work(self, recomputer: Recomputer) -> None:
        """Take stretches until none is left before the first divergence."""
        task = asyncio.current_task()
        assert task is not None
        while self._waiting:
            self.busy[task] = stretch = self._waiting.pop()
            report = await recomputer.recompute(stretch, updated=self._updated)
            self.busy[task] = None
            self._reports.append(report)
            if report.divergence is not None:
                self._leave_out(stretch)

    def _leave_out(self, diverged: LogStretch) -> None:
        """Cancel the stretches after this one."""
        self._waiting = [waiting for waiting in self._waiting if waiting.until <= diverged.begin.position]
        for task, stretch in self.busy.items():
            if stretch is not None and stretch.begin.position > diverged.begin.position:
                task.cancel()

    def covered(self) -> list[StretchReport]:
        """The reports in the stretches' order, up to the first with a divergence."""
        reports: list[StretchReport] = []
        for report in sorted(self._reports, key=lambda candidate: candidate.stretch.begin.position):
            reports.append(report)
            if report.divergence is not None:
                break
        return reports
