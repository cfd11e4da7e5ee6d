"""What a home holds is its owner's alone, and what a user asks for elsewhere is as their umask says."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hindcast.app.system.home import (
    UMASK,
    close_home,
    is_open,
    make_home,
    restrict_new_files,
    users_umask,
)
from stories.recorded_home import make_home as recorded_home
from stories.synthetic_run import a_run

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "from hindcast.app.cli import main; main()")
SHARED = 0o2770


def mode(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


@pytest.fixture(autouse=True)
def usual_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """That of most systems: others may read."""
    monkeypatch.delenv(UMASK, raising=False)
    before = os.umask(0o022)
    yield
    os.umask(before)
    os.environ.pop(UMASK, None)


def old_home(folder: Path) -> Path:
    """As versions made it that left this to the umask."""
    (folder / "runs" / "run-1" / "blobs").mkdir(parents=True)
    (folder / "runs" / "run-1" / "readmodel.sqlite").write_text("")
    (folder / "runs" / "run-1" / "settings.toml").write_text("")
    (folder / "honcho.log.1").write_text("")
    (folder / "broker.json").write_text("{}")
    return folder


def opened_to_others(folder: Path, bits: int = 0o077) -> list[Path]:
    return [place for place in (folder, *folder.rglob("*")) if mode(place) & bits]


def test_a_home_of_an_older_version_is_closed(tmp_path: Path) -> None:
    home = old_home(tmp_path / "home")
    assert is_open(home)
    make_home(home)
    assert not is_open(home)
    assert opened_to_others(home) == []


def test_a_folder_of_other_things_stays_open_and_what_is_ours_in_it_is_closed(tmp_path: Path) -> None:
    home = old_home(tmp_path / "project")
    (home / "report.txt").write_text("")
    (home / "data").mkdir()
    close_home(home)
    assert set(opened_to_others(home)) == {home, home / "report.txt", home / "data"}


def test_a_folder_that_all_may_write_to_stays_so(tmp_path: Path) -> None:
    home = old_home(tmp_path / "tmp")
    home.chmod(0o1777)
    close_home(home)
    assert mode(home) == 0o1777
    assert opened_to_others(home) == [home]


def test_a_home_that_is_shared_with_a_group_stays_so_and_is_closed_to_all_others(tmp_path: Path) -> None:
    home = old_home(tmp_path / "home")
    home.chmod(SHARED | 0o005)
    make_home(home)
    assert mode(home) == SHARED
    assert opened_to_others(home, 0o007) == []
    assert mode(home / "broker.json") == 0o640
    restrict_new_files(home)
    (home / "new").write_text("")
    assert mode(home / "new") == 0o660


def test_links_lead_to_nothing_that_is_changed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    home = old_home(tmp_path / "home")
    (home / "runs" / "link").symlink_to(elsewhere)
    close_home(home)
    assert mode(elsewhere) == 0o644


def test_what_is_made_outside_the_home_has_the_users_umask(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "export"
    restrict_new_files(home)
    make_home(home)
    for place in (home / "export", outside):
        with users_umask(place, home):
            place.mkdir()
            (place / "file").write_text("")
    (home / "later").write_text("")
    assert opened_to_others(home) == []
    assert (mode(outside), mode(outside / "file")) == (0o755, 0o644)


@pytest.mark.process
def test_commands_close_the_home_and_keep_their_files_in_it_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    asyncio.run(recorded_home(home, a_run(1, groups=1)))
    assert mode(home) == 0o755, "made without the umask of an entry point"
    environment = {**os.environ, "HINDCAST_HOME": str(home)}
    places = {"there": tmp_path / "there", "inside": home / "runs" / "inside"}
    for words in (
        ("rebuild", "--json"),
        ("export", "--to", str(places["there"]), "--format", "jsonl"),
        ("export", "--to", str(places["inside"]), "--format", "jsonl"),
        ("attach", "hindcast.app.examples.outcome_counts:consumer", "--until", "end"),
    ):
        done = subprocess.run(
            [*COMMAND, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
    assert opened_to_others(home) == []
    assert opened_to_others(places["there"], 0o022) == []
    assert {mode(place) for place in places["there"].iterdir()} == {0o644}
    assert mode(places["there"]) == 0o755
