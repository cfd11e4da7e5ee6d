"""A fresh process that starts as a role does and says what that took: `python -m bench.replay_start ROLE HOME RUN`.

Time and memory count from where everything is imported: what is left is what the run's length could matter for.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from bench.peaks import peak_mib
from hindcast.app.runs.runs import RunHandle, open_run

MIB = 1024 * 1024


async def start_learner(run: RunHandle) -> str:
    """Fold, and a model with the newest checkpoint."""
    from hindcast.core.models.folders import policy_folder
    from hindcast.learner.restore import restore

    with ThreadPoolExecutor(1) as executor:
        async with run.connect_log("learner") as log:
            restored = await restore(
                log,
                run.blobs,
                policy=policy_folder(run.settings.policy.base),
                executor=executor,
                stop=Event(),
            )
    state = restored.state
    return f"position {state.position}, update {state.updates}, {restored.recomputed} computed again"


async def start_projector(run: RunHandle) -> str:
    """What the tables lack."""
    from hindcast.storage.readmodel.projector import run_projector

    async with run.connect_log("projector") as log:
        end = (await log.identity()).last
        position = await run_projector(log, run.database_url, run.settings.storage, until=end)
    return f"position {position}"


async def start_curriculum(run: RunHandle) -> str:
    """Its state at the log's end."""
    from hindcast.actors.curriculum.projection import FAMILIES, CurriculumProjection
    from hindcast.actors.curriculum.snapshots import curriculum_kind
    from hindcast.actors.log_follower import read_families
    from hindcast.storage.snapshots import newest_standing

    projection = CurriculumProjection.under(run.settings)
    async with run.connect_log("curriculum") as log:
        standing = await newest_standing(log, run.blobs, curriculum_kind(run.settings))
        state = standing.state if standing else projection.initial()
        reading = read_families(log, after=state.position, families=FAMILIES)
        async with aclosing(reading) as batches:
            async for followed in batches:
                for recorded in followed.recorded:
                    state = projection.apply(state, recorded)
    return f"position {state.position}"


ROLES: dict[str, tuple[Callable[[RunHandle], Coroutine[Any, Any, str]], tuple[str, ...]]] = {
    "learner": (start_learner, ("hindcast.learner.loop", "hindcast.core.models.policy")),
    "projector": (start_projector, ("hindcast.storage.readmodel.projector",)),
    "curriculum": (start_curriculum, ("hindcast.actors.curriculum.role",)),
}
"""What is measured, and what its process imports before."""


def main(role: str, home: str, name: str) -> None:
    """Start, and print what it took."""
    import importlib

    start, modules = ROLES[role]
    for module in ("hindcast.app.bootstrap", *modules):
        importlib.import_module(module)
    imported = psutil.Process().memory_info().rss
    began, cpu_began = time.perf_counter(), time.process_time()
    detail = asyncio.run(start(open_run(name, home=Path(home))))
    took = {
        "wall_s": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu_began,
        "imported_mib": imported / MIB,
        "peak_mib": peak_mib(),
        "detail": detail,
    }
    sys.stdout.write(json.dumps(took) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
