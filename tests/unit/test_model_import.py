"""`hindcast policy import`: a model folder becomes a base in the home, or says what is wrong with it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.app.cli import app
from hindcast.app.exports.output_folder import ExportRefused
from hindcast.core.models.policy import load_policy, state_digest

pytestmark = pytest.mark.torch


def imported(folder: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["policy", "import", str(folder), *options])
    return done.exit_code, done.output.replace("\n", " ")


def test_a_folder_becomes_a_base_without_what_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    folder = write_tiny_policy(tmp_path / "tiny")
    (folder / "modeling_tiny.py").write_text("raise SystemExit")
    before = state_digest(load_policy(folder).model)
    code, said = imported(folder)
    taken = tmp_path / "home" / "models" / "tiny"
    assert code == 0, said
    assert f"--set policy.base={taken}" in said
    assert not (taken / "modeling_tiny.py").exists()
    write_tiny_policy(folder, seed=7)
    assert state_digest(load_policy(taken).model) == before != state_digest(load_policy(folder).model)
    again = CliRunner().invoke(app, ["policy", "import", str(folder)])
    assert isinstance(again.exception, ExportRefused)
    assert "is not empty" in str(again.exception)


def test_a_folder_that_fails_a_check_is_not_copied(tmp_path: Path) -> None:
    folder = write_tiny_policy(tmp_path / "tiny")
    (folder / "tokenizer.json").unlink()
    code, said = imported(folder, "--to", str(tmp_path / "taken"))
    assert code == 1
    assert "tokenizer.json" in said
    assert not (tmp_path / "taken").exists()
