"""Distributes stretches of a log among recomputers: in order, the next one to the first that is free.

Invariant: the reports cover everything from the first stretch's beginning to the last one's end or to the first
divergence; only stretches after a divergence are left out.
"""

import asyncio
from collections.abc import Callable, Sequence

from hindcast.core.errors import HindcastError
from hindcast.learner.verify.log_recomputer import Recomputer, StretchReport
from hindcast.learner.verify.survey import LogStretch


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
        self._waiting = [one for one in self._waiting if one.until <= diverged.begin.position]
        for task, stretch in self.busy.items():
            if stretch is not None and stretch.begin.position > diverged.begin.position:
                task.cancel()

    def covered(self) -> list[StretchReport]:
        """The reports in the stretches' order, up to the first with a divergence."""
        found: list[StretchReport] = []
        for report in sorted(self._reports, key=lambda one: one.stretch.begin.position):
            found.append(report)
            if report.divergence is not None:
                break
        return found
