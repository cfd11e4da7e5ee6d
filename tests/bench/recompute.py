"""A recorded run's updates, computed again with other settings of the learner and as recorded: what a setting saves.

The batches are the run's own, so that a setting is measured on pages, groups and answers as they came. Each measurement is a
process of its own; its time is processor time inside the learner's `Training`, reading the log not counted.
"""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from bench.comparison import Comparison, summarise
from hindcast.app.runs.sources import open_source
from hindcast.core.errors import SettingsError
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.buffer.records import Batch
from hindcast.learner.training import Training
from hindcast.learner.verify.verify import verify

FAR = 1e9
"""Tolerance of the verifier: other arithmetic gives other weights, which do not matter here."""


class Timed(Training):
    """Training that sums up its processor time."""

    changes: Mapping[str, Any] = {}
    """Settings of the learner that every batch has instead of the recorded ones."""
    seconds = 0.0
    updates = 0

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """See `Training.begin`."""
        began = time.process_time()
        changed = batch.settings.model_copy(update=dict(self.changes))
        super().begin(plan, replace(batch, settings=changed))
        Timed.seconds += time.process_time() - began

    def step(self, index: int) -> Any:
        """See `Training.step`."""
        began = time.process_time()
        fact = super().step(index)
        Timed.seconds += time.process_time() - began
        Timed.updates += 1
        return fact


def recompute(run: str, changes: Mapping[str, Any]) -> float:
    """Updates per second of processor time of a whole run. For a process of its own.

    Raises:
        SettingsError: the changes end the recomputation early, as another version of digests does.

    """

    Timed.changes = changes

    def make_trainer(*given: Any, settings: LearnerSettings, **more: Any) -> Timed:
        return Timed(*given, settings=settings.model_copy(update=dict(changes)), **more)

    async def all_of_it() -> None:
        source = open_source(run)
        async with source.connect_log() as log:
            policy = policy_folder(source.settings.policy.base)
            report = await verify(log, source.blobs, policy=policy, tolerance=FAR, make_trainer=make_trainer)
        if report.first_divergence is not None:
            raise SettingsError(f"{changes} cannot be measured on {run}: {report.first_divergence}")

    asyncio.run(all_of_it())
    return Timed.updates / Timed.seconds


def compare_settings(run: str, changes: Mapping[str, Any], *, repeats: int) -> Comparison:
    """With the changed settings and as recorded, in turn."""
    pairs: list[tuple[float, float]] = []
    for number in range(repeats):
        ways: list[Mapping[str, Any]] = [changes, {}] if number % 2 == 0 else [{}, changes]
        found = []
        for way in ways:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                found.append(pool.submit(recompute, run, way).result())
        first, second = found if number % 2 == 0 else found[::-1]
        pairs.append((first, second))
    words = ", ".join(f"{name}={value}" for name, value in changes.items())
    return summarise(
        pairs,
        figure=f"updates of {run} with {words}",
        unit="updates/CPU s",
        peer_name="as recorded",
        goal=None,
        detail="the run's own batches, from its first update on",
    )
