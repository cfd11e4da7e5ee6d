"""`hindcast verify --ranks`: the run's own number of processes repeats the bits of one that a single process cannot repeat."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.numerics import configure
from hindcast.storage.archive.archiver import Archiver
from processes.system import COMMAND, ROOT
from stories.archive_story import open_writer
from stories.ranks_story import leading, learn_with
from stories.training_story import bench, settings_with

pytestmark = [pytest.mark.process, pytest.mark.torch]
WAIT_S = 600.0


@pytest.mark.slow
async def test_as_many_processes_as_trained_repeat_their_bits(tmp_path: Path) -> None:
    configure(1)
    ranks = LearnerSettings(processes=2, exact_ranks=False)
    policy = write_tiny_policy(tmp_path / "policy", llama=True)
    plain = settings_with(
        processes=2, exact_ranks=False, checkpoint_every=1, keep_checkpoints=9, digest_every=3
    )
    settings = plain.model_dump(mode="json")
    settings["policy"]["base"] = str(policy)
    made = await bench(tmp_path, batches=2, settings=decode_settings(settings), policy=policy)
    with leading(made, ranks) as make:
        await learn_with(make, made, until=4)
    writer = open_writer(tmp_path / "archive", run=made.log.run)
    await Archiver(made.log, made.blobs, writer, pages=True).run(follow=False)
    writer.close()
    archived = contents(tmp_path / "archive")

    alone = verify(tmp_path / "archive")
    assert alone.returncode == 1
    assert "--ranks" in alone.stderr
    report = reported(verify(tmp_path / "archive", "--ranks"))
    assert (report["identical"], report["updates"], report["digests"], report["checkpoints"]) == (
        True,
        4,
        1,
        2,
    )
    later = reported(verify(tmp_path / "archive", "--ranks", "--from", "checkpoint=2"))
    assert (later["identical"], later["updates"]) == (True, 2)
    assert contents(tmp_path / "archive") == archived, "nothing was written"
    assert verify(tmp_path / "archive", "--ranks", "--tolerance", "1e-4").returncode == 2


def verify(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "verify", str(folder), *arguments, "--json"],
        cwd=ROOT,
        env={**os.environ, "HINDCAST_HOME": str(folder.parent / "home"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def reported(done: "subprocess.CompletedProcess[str]") -> Any:
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def contents(folder: Path) -> dict[str, int]:
    """Files of a folder and their sizes."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
