"""A temporary folder goes with its process, or soon after."""

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hindcast.core.scratch import MOST_REMOVED, PREFIX, remove_abandoned, scratch_folder

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from hindcast.core.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "profile").mkdir()
    (folder / "profile" / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(90)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holding() -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLD], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_a_living_one_holds_stays(
    temporary: Path,
) -> None:
    (dead, left), (living, held) = holding(), holding()
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert (left / "profile" / "file").exists()
    with scratch_folder() as mine:
        assert set(temporary.iterdir()) == {held, mine}
        assert mine.stat().st_mode & 0o777 == 0o700
    living.kill()
    living.communicate()
    assert remove_abandoned() == 1
    assert list(temporary.iterdir()) == []


def test_one_call_removes_so_many_at_most(temporary: Path) -> None:
    for number in range(MOST_REMOVED + 3):
        (temporary / f"{PREFIX}{number:04}").mkdir()
    assert remove_abandoned() == MOST_REMOVED
    assert remove_abandoned() == 3


def test_nothing_of_others_is_touched(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    (temporary / f"{PREFIX}file").write_text("")
    if os.geteuid() == 0:
        (temporary / f"{PREFIX}theirs").mkdir()
        os.chown(temporary / f"{PREFIX}theirs", 65534, 65534)
    before = set(temporary.iterdir())
    assert remove_abandoned() == 0
    assert set(temporary.iterdir()) == before


def test_many_at_once_have_a_folder_each(temporary: Path) -> None:
    def use(_number: int) -> Path:
        with scratch_folder() as folder:
            (folder / "mine").write_text("")
            assert [entry.name for entry in folder.iterdir()] == ["mine"]
            return folder

    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(use, range(64)))
    assert len(set(folders)) == 64
    assert list(temporary.iterdir()) == []
