"""A projector killed with signal 9 again and again, on a real broker, ends with the read model that the log gives."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.broker import ensure_broker
from hindcast.storage.readmodel.rebuild import rebuild
from stories.recorded_home import make_home
from stories.synthetic_run import a_run

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
KILLS = 3
WAIT_S = 60.0
PROJECTOR = """
import asyncio
from hindcast.app.runs.runs import open_run
from hindcast.core.settings.schema import StorageSettings
from hindcast.storage.readmodel.projector import run_projector

async def main():
    handle = open_run()
    async with handle.connect_log("projector") as log:
        await run_projector(log, handle.database_url, StorageSettings(project_events=5))

asyncio.run(main())
"""


async def project_until(handle: RunHandle, position: int) -> None:
    """Run a projector as a process; killed once its read model has come so far, in the midst of what it does next."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROJECTOR, cwd=ROOT, env={**os.environ, "HINDCAST_HOME": str(handle.home)}
    )
    try:
        async with asyncio.timeout(WAIT_S):
            while await asyncio.to_thread(reached, handle) < position:
                assert process.returncode is None
    finally:
        process.kill()
        await process.wait()


def reached(handle: RunHandle) -> int:
    model = handle.read_model()
    try:
        return model.position()
    finally:
        model.close()


async def test_a_projector_killed_again_and_again_ends_with_what_the_log_gives(
    tmp_path: Path, url: str
) -> None:
    facts = a_run(1, groups=60)
    handle = await make_home(tmp_path / "home", facts, overrides=[f"storage.database={url}"])
    stops = []
    async with ensure_broker(handle.home):
        for _ in range(KILLS):
            await project_until(handle, reached(handle) + 1)
            stops.append(reached(handle))
        await project_until(handle, len(facts))
        async with handle.connect_log() as log:
            report = await rebuild(log, handle.database_url)
    assert sum(stop < len(facts) for stop in stops) >= 2, (
        f"it was never killed in the midst of the log: {stops}"
    )
    assert report.identical, report.differing
    assert (report.position, report.filled) == (len(facts), 0)
