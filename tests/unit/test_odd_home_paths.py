"""A home works at any path that the file system and UTF-8 allow: broker, read model, consumers."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from app.broker import ensure_broker
from app.supervisor import home_folder
from core.errors import SettingsError
from storage.sqlite_address import sqlite_address

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


def test_a_home_whose_path_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "\udcff"))
    with pytest.raises(SettingsError, match="not valid UTF-8"):
        home_folder()
