"""A home works at any path that the file system and UTF-8 allow: broker, read model, consumers."""

import tomllib
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from hindcast.app.evaluation.task_selection import settings_file
from hindcast.app.settings.configuration import read_file, resolve, to_toml
from hindcast.app.system.broker import ensure_broker
from hindcast.app.system.home import home_folder
from hindcast.core.errors import SettingsError
from hindcast.storage.readmodel.sqlite_address import sqlite_address

pytestmark = pytest.mark.torch

NAMES = (
    "plain",
    "ümläut 日本 😀",
    "quo\"te's",
    "back\\slash\\n",
    "new\nline\tand tab",
    "\x01\x7fcontrol",
    "$HOME #hash; {brace}",
    "100%41%zz",
    "what?mode=ro",
    "/".join(["long" * 50] * 4),
)


@pytest.mark.parametrize("name", NAMES)
async def test_the_broker_keeps_its_store_in_a_home_at_any_path(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    async with ensure_broker(home):
        assert (home / "broker" / "jetstream").is_dir()


@pytest.mark.parametrize("name", NAMES)
def test_the_address_of_an_sqlite_file_names_that_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / name / "readmodel.sqlite"
    assert make_url(sqlite_address(file)).database == str(file)


@pytest.mark.parametrize("name", NAMES)
def test_a_settings_file_names_its_sources_at_any_path_and_reads_back(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "hindcast.toml").write_text("[learner]\nlearning_rate = 0.003\n")
    resolved = resolve(environment={}, folder=folder)
    (tmp_path / "run.toml").write_text(to_toml(resolved))
    layer, _ = read_file(tmp_path / "run.toml")
    assert layer.values["learner.learning_rate"] == 0.003


def test_selected_tasks_of_any_name_read_back() -> None:
    names = ["store/ümläut 😀", 'quo"te', "back\\slash\x7f\n"]
    assert tomllib.loads(settings_file(names, recipe="mgrpo"))["curriculum"]["tasks"] == names


def test_a_home_whose_path_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "\udcff"))
    with pytest.raises(SettingsError, match="not valid UTF-8"):
        home_folder()
