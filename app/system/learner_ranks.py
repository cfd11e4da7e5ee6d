"""Starts, watches and ends the other data-parallel ranks of a learner (`learner.processes`).

    supervisor ──> learner (rank 0: log, blobs, orders) ──starts──> ranks 1, 2 … (`app.system.worker learner` again)

The ranks are in the learner's session and die with it. When one ends, the learner ends, too, and its supervisor starts
all of them again. On several machines torchrun starts every rank, and this module starts none.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.supervisor import die_with_parent
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.models.arithmetic import require_computing
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.learner.distributed.leader import MakeLeading, follow
from hindcast.learner.distributed.rendezvous import Place, found_store, join_group, open_store
from hindcast.learner.loop import run_learner
from hindcast.learner.numerics import configure
from hindcast.learner.training import MakeTrainer, Training

WATCH_S = 0.5


class RankEnded(HindcastError):
    """A data-parallel rank ended: no update can be computed without it."""


def require_place(place: Place, settings: LearnerSettings) -> None:
    """Raise SettingsError if the environment and the settings differ in the number of processes."""
    if place.size != settings.processes:
        raise SettingsError(
            f"learner.processes = {settings.processes}, and the environment (WORLD_SIZE) says {place.size}: start torchrun with "
            f"as many processes in all as the setting says"
        )


async def train(
    handle: RunHandle,
    log: EventLog,
    publisher: Publisher,
    *,
    name: str,
    place: Place | None,
    until_updates: int | None,
) -> None:
    """Run the leader until its goal is reached. Raises as `learner.loop.run_learner` and `companions` do."""
    start = partial(start_rank, ("-m", "hindcast.app.system.worker", "learner", name))
    with companions(handle.settings.learner, place, start) as (make_trainer, others):
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(others.watch(), name="watch companions")
                await run_learner(
                    log,
                    handle.blobs,
                    publisher=publisher,
                    policy=policy_folder(handle.settings.policy.base),
                    until_updates=until_updates,
                    make_trainer=make_trainer,
                )
                watching.cancel()
        except* RuntimeError as lost:  # raised by a collective that has lost a rank
            others.require_all()
            raise lost


def help_leader(place: Place, handle: RunHandle) -> None:
    """Compute as a follower rank until the leader reaches its goal. Blocking."""
    settings = handle.settings.learner
    require_place(place, settings)
    configure(settings.threads)
    with join_group(place, found_store(place), settings) as (orders, ranks):
        follow(orders, policy_folder(handle.settings.policy.base), blobs=handle.blobs, ranks=ranks)


class RankProcesses:
    """The ranks that a leader started itself."""

    def __init__(self, started: Sequence["subprocess.Popen[bytes]"]) -> None:
        self._started = started

    async def watch(self) -> None:
        """Watch for ever. Raises RankEnded when a rank has ended."""
        while True:
            self.require_all()
            await asyncio.sleep(WATCH_S)

    def require_all(self) -> None:
        """Raise RankEnded if a rank has ended."""
        for rank, process in enumerate(self._started, start=1):
            if (status := process.poll()) is not None:
                raise RankEnded(
                    f"process {rank} of the learner (pid {process.pid}) ended with status {status}; its messages are above. "
                    "All ranks are started again."
                )


StartRank = Callable[[Place, int], "subprocess.Popen[bytes]"]
"""Starts another rank at a place of this machine, which finds its leader at a port."""


@contextmanager
def companions(
    settings: LearnerSettings, place: Place | None, start: StartRank
) -> Iterator[tuple[MakeTrainer, RankProcesses]]:
    """Yield what makes the leader's trainer, and the other ranks. `place`: by torchrun; None: `start` starts the others.

    Raises:
        SettingsError: see `require_place`; or there is no GPU although the settings require one.
        UnlikeRanks: see `join_group`.

    """
    require_computing(settings, processes=settings.processes if place is None else 1)
    configure(settings.threads)  # before the process group is joined, as in every follower
    if place is None and settings.processes == 1:
        yield Training, RankProcesses([])
        return
    if place is not None:
        require_place(place, settings)
        with join_group(place, found_store(place), settings) as (orders, ranks):
            yield MakeLeading(orders, ranks), RankProcesses([])
            orders.end()  # only an order ends them, and torchrun waits for all
        return
    store = open_store(settings.processes)
    started = [
        start(Place(rank, rank, settings.processes), store.port) for rank in range(1, settings.processes)
    ]
    try:
        with join_group(Place(0, 0, settings.processes), store, settings) as (orders, ranks):
            yield MakeLeading(orders, ranks), RankProcesses(started)
    finally:
        for process in started:
            process.kill()
            process.wait()


def start_rank(arguments: Sequence[str], place: Place, port: int) -> "subprocess.Popen[bytes]":
    """Start Python with these arguments as a rank, which ends with this process."""
    return subprocess.Popen(
        [sys.executable, "-P", *arguments],
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
        env=os.environ | place.environment(port),
    )
