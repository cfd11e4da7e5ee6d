"""Exporters that another package brings: used by the command, with options, and refused in words."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hindcast.app.cli import app
from hindcast.app.exports.exporter import Exporter, check_exporter
from hindcast.app.plugins import find_plugins
from hindcast.core.errors import PluginError, SettingsError
from hindcast.events.catalogue import EpisodeEnded, StepTaken
from hindcast.events.codec import decode
from stories.example_plugins import forget, installed_example
from stories.export_story import HOSTILE, told_archive

MODULE = "hindcast_chat_lines"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """An archive, and the number of steps of its ended episodes."""
    folder = tmp_path_factory.mktemp("plugged")
    source, events = asyncio.run(told_archive(folder / "tale"))
    facts = [found.fact for one in events if (found := decode(one)) is not None]
    ended = {fact.episode for fact in facts if isinstance(fact, EpisodeEnded)}
    steps = sum(isinstance(fact, StepTaken) and fact.episode in ended for fact in facts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HINDCAST_HOME", str(folder / "home"))
        yield source.folder, steps


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    with installed_example("chat_lines", tmp_path / "site") as folder:
        yield folder


def export(archive: Path, to: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", str(archive), "--to", str(to), *arguments])


@pytest.mark.parametrize("name", ["chat_lines", f"{MODULE}:EXPORTER"])
def test_the_example_writes_a_run_by_its_name_or_as_module_and_object(
    archive: tuple[Path, int], installed: Path, tmp_path: Path, name: str
) -> None:
    done = export(archive[0], tmp_path / "out", "--format", name, "--option", "system=Be brief.", "--json")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (tmp_path / "out" / "steps.jsonl").read_text().splitlines()]
    assert json.loads(done.stdout)["counts"] == {"steps": len(lines)}
    assert 0 < len(lines) <= archive[1]
    system, user, assistant = lines[0]["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert user["content"].startswith(HOSTILE)
    assert assistant["role"] == "assistant"
    assert json.loads((tmp_path / "out" / "export.json").read_text())["format"] == name


def test_unknown_options_and_formats_are_refused_before_anything_is_written(
    archive: tuple[Path, int], installed: Path, tmp_path: Path
) -> None:
    to = tmp_path / "out"
    wrong = export(archive[0], to, "--format", "chat_lines", "--option", "sytem=x")
    assert isinstance(wrong.exception, SettingsError)
    assert "unknown field `sytem`. Its options: system" in str(wrong.exception)
    wrong = export(archive[0], to, "--format", "dataset", "--option", "shard_bytes=many")
    assert "Expected `int`, got `str` - at `$.shard_bytes`" in str(wrong.exception)
    wrong = export(archive[0], to, "--format", "chat_lins")
    assert wrong.exit_code == 2
    assert "the nearest is chat_lines" in " ".join(wrong.output.split())
    wrong = export(archive[0], to, "--format", f"{MODULE}:WRITER")
    assert isinstance(wrong.exception, PluginError)
    assert not to.exists()


def test_what_is_wrong_with_an_exporter_is_said(installed: Path) -> None:
    (finding,) = find_plugins("exporters", "chat_lines")
    assert not finding.problems
    (installed / f"{MODULE}.py").write_text("EXPORTER = 3\n")
    forget(MODULE)
    (finding,) = find_plugins("exporters", "chat_lines")
    assert finding.problems[0] == "it is a int, no hindcast.app.exports.exporter.Exporter"
    assert check_exporter(Exporter(writes="")) == [
        "it has neither a writer nor an episode_file",
        "its `writes` does not say what it writes",
    ]


def test_every_built_in_exporter_can_be_used() -> None:
    found = find_plugins("exporters")
    assert {"parquet", "jsonl", "atif", "sts", "html", "dataset"} <= {one.name for one in found}
    assert all(not one.problems for one in found)
