"""`hindcast lineage` and `--as-of` as commands: text for people, JSON for programs, the same answers as the read model's."""

import asyncio
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from hindcast.app.cli import app
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import HindcastError
from hindcast.events.catalogue import BatchPlanned, StepTaken, UpdateApplied, WeightsPublished
from hindcast.storage.readmodel.lineage.lineage import lineage
from stories.recorded_home import make_home
from stories.synthetic_run import a_run

FACTS = a_run(1, groups=8)


def at(kind: type, **fields: object) -> int:
    """Position of the first fact of a kind."""
    return next(
        position
        for position, told in enumerate(FACTS, 1)
        if isinstance(told.fact, kind) and all(getattr(told.fact, n) == value for n, value in fields.items())
    )


EPISODE = next(told.fact.episode for told in FACTS if isinstance(told.fact, StepTaken))


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    """A run whose read model is made; no broker is running."""
    home = tmp_path_factory.mktemp("lineage") / "home"
    made = asyncio.run(make_home(home, FACTS))
    assert call(home, "rebuild", "--json").exit_code == 0
    return made


def call(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"HINDCAST_HOME": str(home)})


def document(handle: RunHandle, *arguments: str) -> Any:
    result = call(handle.home, *arguments, "--json")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    return json.loads(line)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("step", f"{EPISODE}/0"),
        ("episode", EPISODE),
        ("batch", "0"),
        ("update", "1"),
        ("task", next(told.entity for told in FACTS if told.entity.startswith("task_"))),
        ("policy", "latest"),
    ],
)
def test_every_kind_is_answered_as_the_read_model_does_in_json_and_in_text(
    handle: RunHandle, kind: str, name: str
) -> None:
    with handle.read_model().reading() as connection:
        expected = lineage(connection, kind, name)
    assert document(handle, "lineage", kind, name) == msgspec.to_builtins(expected)
    text = call(handle.home, "lineage", kind, name).stdout
    assert f"run tale as of position {len(FACTS)}" in text
    assert "came from" in text
    assert "led to" in text
    assert all(re.search(r"\S", line[:60]) for line in text.splitlines() if line)


def test_the_tree_shows_each_entry_once_with_its_position_and_counts_those_it_leaves_out(
    handle: RunHandle,
) -> None:
    answer = document(handle, "lineage", "batch", "0", "--backward", "--depth", "2")
    (trained,) = (one for one in answer["backward"]["branches"] if one["relation"] == "trained on")
    text = call(handle.home, "lineage", "batch", "0", "--backward", "--depth", "2").stdout
    assert f"trained on {trained['total']} episodes (" in text
    for node in trained["nodes"]:
        assert re.search(rf"─ {node['id']} · .*position {node['position']}$", text, re.MULTILINE)
    rest = trained["total"] - len(trained["nodes"])
    assert rest > 0
    assert f"└─ … {rest} more: --all lists them" in text
    everything = call(handle.home, "lineage", "batch", "0", "--backward", "--depth", "2", "--all").stdout
    assert "more: --all" not in everything
    assert everything.count("─ ep_") > text.count("─ ep_")


def test_one_direction_can_be_asked_for(handle: RunHandle) -> None:
    assert document(handle, "lineage", "update", "1", "--backward")["forward"] is None
    assert document(handle, "lineage", "update", "1", "--forward")["backward"] is None
    both = document(handle, "lineage", "update", "1", "--forward", "--backward")
    assert both == document(handle, "lineage", "update", "1")


def test_a_lineage_is_answered_as_of_any_place(handle: RunHandle) -> None:
    planned = at(BatchPlanned, batch=1)
    then = document(handle, "lineage", "batch", "1", "--as-of", str(planned))
    assert (then["position"], then["forward"]["branches"], then["reach"]) == (planned, [], None)
    published = document(handle, "lineage", "batch", "1", "--as-of", "batch=1")
    assert published["position"] == at(WeightsPublished, version=2)
    assert published["reach"]["first_policy"] == 2
    result = call(handle.home, "lineage", "batch", "1", "--as-of", str(planned - 1))
    assert isinstance(result.exception, HindcastError)
    assert f"no batch 1 as of position {planned - 1}; the last is 0" in str(result.exception)


@pytest.mark.parametrize("place", ["60", "position=60", "update=1", "policy=1", "batch=0", "checkpoint=last"])
def test_every_question_about_a_run_is_answered_as_of_a_place(handle: RunHandle, place: str) -> None:
    position = document(handle, "run", "show", "--as-of", place)["position"]
    assert position == {"60": 60, "position=60": 60, "update=1": at(UpdateApplied)}.get(place, position)
    assert position < len(FACTS)
    for command in (("run", "show"), ("episode", "list"), ("task", "list"), ("policy", "list")):
        by_place = document(handle, *command, "--as-of", place)
        assert by_place == document(handle, *command, "--as-of", str(position))
        assert by_place != document(handle, *command)


def commands(
    group: TyperGroup | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    found = group or get_command(app)
    assert isinstance(found, TyperGroup)
    for name, command in found.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_that_asks_the_read_model_takes_as_of() -> None:
    """By its source, so that the next one cannot forget it. Two runs have no position in common, and SQL names its own."""
    asking = {
        path: {option for parameter in command.params for option in parameter.opts}
        for path, command in commands()
        if re.search(r"\b(connect_read_model|_answer)\(", inspect.getsource(inspect.unwrap(command.callback)))
    }
    assert {("run", "show"), ("episode", "list"), ("lineage", "update")} <= set(asking)
    assert {path for path, options in asking.items() if "--as-of" not in options} <= {
        ("run", "compare"),
        ("sql",),
    }


def test_an_archive_answers_as_its_run_does_without_a_broker_and_without_the_home(
    handle: RunHandle, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "archive", tmp_path / "elsewhere"
    written = call(handle.home, "archive", "write", "tale", str(folder))
    assert (folder / "manifest.json").is_file(), written.output
    questions = (
        ("run", "show"),
        ("episode", "show", EPISODE, "--run"),
        ("task", "list", "--run"),
        ("policy", "list", "--run"),
        ("lineage", "update", "1", "--run"),
    )
    for question in questions:
        asked = call(elsewhere, *question, str(folder), "--as-of", "update=2", "--json")
        assert asked.exit_code == 0, asked.output
        assert json.loads(asked.stdout) == document(handle, *question, "tale", "--as-of", "update=2")
