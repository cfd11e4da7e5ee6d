"""A learner on a real broker, in its own process under its own role: killed with signal 9, resumed, verified afresh."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Connect, LiveBroker

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.settings.schema import LogSettings
from hindcast.events.jetstream.accounts import PUBLISHES
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.storage.blobs.store import BlobStore
from stories.training_story import Story, informative, settings_with, tell

pytestmark = [pytest.mark.broker, pytest.mark.torch]

WAIT_S = 90.0
PROGRAM = Path(__file__).parents[1] / "processes" / "learner_process.py"


@pytest.mark.slow
async def test_killed_with_signal_9_it_resumes_and_a_fresh_process_verifies_every_bit(
    broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings, tmp_path: Path
) -> None:
    blobs, policy = tmp_path / "blobs", write_tiny_policy(tmp_path / "policy")
    story = Story(policy)
    admin = await JetStreamLog.create_or_open(await connect_as(broker, "admin"), run_name, log_settings)
    logs = {"app": admin} | {
        role: await JetStreamLog.open(await connect_as(broker, role), run_name, log_settings)
        for role in PUBLISHES
        if role in ("curriculum", "actor", "judge")
    }
    told = [story.start(BlobStore(blobs), settings_with(checkpoint_every=2, minibatches=2))]
    for _ in range(8):
        told += story.group(*informative(steps=6))
    await tell(admin, told, logs=logs)

    async def start(role: str, *goal: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, PROGRAM, role, broker.home, broker.url, run_name, blobs, policy, *goal),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            stdout=asyncio.subprocess.PIPE,
        )

    async def result(process: asyncio.subprocess.Process) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            output, _ = await process.communicate()
        assert process.returncode == 0
        return dict(json.loads(output.splitlines()[-1]))

    before = (await admin.identity()).last
    doomed = await start("learner", "8")
    async with asyncio.timeout(WAIT_S):
        while (await admin.identity()).last < before + 3:  # version 0, a plan, an update  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    doomed.kill()
    await doomed.wait()
    report = await result(await start("learner", "8"))
    assert report["updates"] == 8
    verified = await result(await start("reader"))
    assert (verified["identical"], verified["updates"], verified["weights"]) == (True, 8, 5)
    assert verified["recorded_on"] == verified["verified_on"]
