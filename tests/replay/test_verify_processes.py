"""`hindcast verify` as its users call it, on an archive: in several processes, on what stands for another processor."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import psutil
import pytest

from hindcast.app.replay.recomputers import Assignment, RecomputingFailed, recomputing_processes
from hindcast.core.errors import BlobMissing
from hindcast.core.settings.changes import decode_settings
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.learner.verify.survey import BASE, LogStretch
from hindcast.storage.archive.archiver import Archiver
from processes.system import COMMAND, ROOT
from stories.archive_story import open_writer
from stories.training_story import bench, learn, settings_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.broker, pytest.mark.torch]
WAIT_S = 120.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of six updates in three batches, all checkpoints kept."""
    place = tmp_path_factory.mktemp("run")

    async def make() -> Path:
        chosen = settings_with(checkpoint_every=1, keep_checkpoints=50, keep_weights=50)
        plain = chosen.model_dump(mode="json")
        plain["policy"]["base"] = str(place / "policy")
        made = await bench(place, settings=decode_settings(plain))
        await learn(made, until=6)
        writer = open_writer(place / "archive", run=made.log.run)
        await Archiver(made.log, made.blobs, writer, pages=True).run(follow=False)
        writer.close()
        return place / "archive"

    return asyncio.run(make())


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "HINDCAST_HOME": str(folder.parent / "home"), "OMP_NUM_THREADS": "1", **more}


def verified(folder: Path, *arguments: str, status: int = 0, **more: str) -> Any:
    done = subprocess.run(
        [*COMMAND, "verify", str(folder), *arguments, "--json"],
        cwd=ROOT,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == status, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_two_processes_prove_the_whole_and_their_cpu_time_counts(folder: Path) -> None:
    report = verified(folder, "--parallel", "2", "--from", "checkpoint=2", "--until", "end")
    assert (report["identical"], report["updates"], report["checkpoints"]) == (True, 4, 2)
    assert (report["processes"], len(report["stretches"])) == (2, 2)
    assert report["cpu_s"] > sum(part["cpu_s"] for part in report["stretches"]) > 0


def test_without_vector_instructions_bits_differ_and_numbers_agree(folder: Path) -> None:
    """The one difference between machines that can be made on any of them."""
    plain = verified(folder, "--until", "batch=0", status=3, ATEN_CPU_CAPABILITY="default")
    found = plain["first_divergence"]
    assert (found["event"], found["what"]) == ("update.applied", "loss")
    assert (found["same"], found["differing"]) == (["inputs", "order", "advantages"], ["loss", "weights"])
    assert 0 < found["apart"] < 1e-4
    assert found["machine_now"]["cpu_capability"] == "DEFAULT"
    assert "DEFAULT now" in found["cause"]
    assert "--tolerance" in found["cause"]
    close = verified(folder, "--tolerance", "1e-4", ATEN_CPU_CAPABILITY="default")
    assert (close["identical"], close["within_tolerance"], close["first_divergence"]) == (False, True, None)
    assert [one["update"] for one in close["deviations"]] == [1, 2, 3, 4, 5, 6]
    assert 0 < max(one["largest"] for one in close["deviations"]) <= 1e-4


def test_ctrl_c_ends_every_process(folder: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "verify", str(folder), "--parallel", "2"],
        cwd=ROOT,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    children: list[psutil.Process] = []
    deadline = time.monotonic() + WAIT_S
    while len(children) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
        children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(WAIT_S) == 130
    gone, alive = psutil.wait_procs(children, timeout=WAIT_S)
    assert (len(gone), alive) == (2, [])


class TestOneProcess:
    """A recomputer that is a process."""

    def assignment(self, folder: Path) -> Assignment:
        return Assignment(run=str(folder), code_rev="test", tolerance=None)

    async def whole(self, folder: Path) -> LogStretch:
        return LogStretch(begin=BASE, until=(await ArchiveLog(folder).identity()).last)

    async def test_that_dies_is_said_to_have_died(self, folder: Path) -> None:
        whole = await self.whole(folder)
        async with recomputing_processes(1, self.assignment(folder)) as (one,):
            asyncio.get_running_loop().call_later(0.5, os.kill, one.pid, signal.SIGKILL)
            with pytest.raises(RecomputingFailed, match="ended with status -9"):
                await one.recompute(whole, updated=lambda: None)

    async def test_hands_on_what_keeps_it_from_computing(self, folder: Path, tmp_path: Path) -> None:
        copy = copytree(folder, tmp_path / "copy")
        rmtree(copy / "blobs")
        async with recomputing_processes(1, self.assignment(copy)) as (one,):
            with pytest.raises(BlobMissing):
                await one.recompute(await self.whole(folder), updated=lambda: None)

    def test_ends_when_its_parent_is_killed(self, folder: Path) -> None:
        program = (
            "import asyncio, sys\n"
            "from hindcast.app.replay.recomputers import Assignment, ProcessRecomputer\n"
            "async def go():\n"
            f"    one = await ProcessRecomputer.start(Assignment(run={str(folder)!r}, code_rev='', tolerance=None))\n"
            "    print(one.pid, flush=True)\n"
            "    await asyncio.sleep(600)\n"
            "asyncio.run(go())\n"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=environment(folder),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        parent.stdout.close()
        child.wait(WAIT_S)
