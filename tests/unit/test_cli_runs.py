"""Runs of a home: names, which one is meant, and what lies where."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from hindcast.app.cli import app
from hindcast.app.revision import code_revision
from hindcast.app.runs.runs import (
    IMPORTING,
    Fork,
    NoSuchRun,
    RunHandle,
    UnfinishedImport,
    create_run,
    list_runs,
    open_run,
    plan_run,
    write_down,
)
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.launch import Launch, write_launch
from hindcast.app.system.processes import write_json
from hindcast.core.errors import BrokerUnreachable, SettingsError


def new(home: Path, name: str | None = None, *overrides: str) -> str:
    return create_run(resolve(environment={}, folder=home, overrides=overrides), home=home, name=name).name


def test_unnamed_runs_are_numbered(tmp_path: Path) -> None:
    assert [new(tmp_path), new(tmp_path, "mine"), new(tmp_path), new(tmp_path, "run-9"), new(tmp_path)] == [
        "run-1",
        "mine",
        "run-2",
        "run-9",
        "run-10",
    ]


def test_without_a_name_the_run_started_last_is_meant_else_the_newest(tmp_path: Path) -> None:
    for age, name in enumerate(("c", "a", "b")):
        new(tmp_path, name)
        os.utime(tmp_path / "runs" / name / "settings.toml", (age, age))
    assert list_runs(tmp_path) == ["c", "a", "b"]
    assert open_run(home=tmp_path).name == "b"
    write_launch(tmp_path, Launch(run="a"))
    assert open_run(home=tmp_path).name == "a"
    write_launch(tmp_path, Launch(run="removed"))
    assert open_run(home=tmp_path).name == "b"


def test_a_run_keeps_its_settings_and_recipe(tmp_path: Path) -> None:
    new(tmp_path, "mine", "learner.learning_rate=1e-6", "log.max_bytes=12345678")
    opened = open_run("mine", home=tmp_path)
    assert (
        opened.settings
        == resolve(
            environment={},
            folder=tmp_path,
            overrides=["learner.learning_rate=1e-6", "log.max_bytes=12345678"],
        ).settings
    )
    assert opened.recipe == "mgrpo"
    assert opened.folder == tmp_path / "runs" / "mine"
    assert opened.database_url == f"sqlite:///{tmp_path}/runs/mine/readmodel.sqlite"


def test_the_database_can_be_elsewhere(tmp_path: Path) -> None:
    new(tmp_path, "mine", "storage.database=postgresql+psycopg://me@host/name")
    assert open_run("mine", home=tmp_path).database_url == "postgresql+psycopg://me@host/name"


def test_the_home_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new(tmp_path, "mine")
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path))
    assert open_run().name == "mine"


def test_a_run_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(NoSuchRun, match=r"no run in .* yet\. Run: hindcast start"):
        open_run(home=tmp_path)
    new(tmp_path, "one")
    new(tmp_path, "two")
    with pytest.raises(NoSuchRun, match=r"no run 'three' .*: one, two"):
        open_run("three", home=tmp_path)


@pytest.mark.parametrize("name", ["", "Big", "a b", "../up", "a.b", "a*", "-a", "x" * 49])
def test_a_name_that_cannot_stand_in_a_subject_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be a run's name"):
        new(tmp_path, name)
    assert list_runs(tmp_path) == []


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    new(tmp_path, "mine")
    with pytest.raises(SettingsError, match="there is a run 'mine'"):
        new(tmp_path, "mine")


def test_a_fork_is_not_named_like_a_run_whose_events_it_holds(tmp_path: Path) -> None:
    """Also where that run is not in this home, but in an archive."""
    resolved = resolve(environment={}, folder=tmp_path)
    with pytest.raises(SettingsError, match="cannot be named 'run-7'"):
        plan_run(resolved, name="run-7", home=tmp_path, ancestors={"run-7"})
    assert plan_run(resolved, home=tmp_path, ancestors={"run-7"}).name == "run-8"


def test_a_name_that_is_being_imported_is_refused(tmp_path: Path) -> None:
    filling = UnfinishedImport(archive="/backup/mine", command="hindcast import /backup/mine")
    write_json(tmp_path / "runs" / "mine" / IMPORTING, msgspec.to_builtins(filling))
    with pytest.raises(SettingsError, match="Go on with: hindcast import /backup/mine"):
        new(tmp_path, "mine")
    assert list_runs(tmp_path) == []


def test_a_fork_whose_parent_is_gone_says_what_to_restore(tmp_path: Path) -> None:
    resolved = resolve(environment={}, folder=tmp_path)
    for fork, said in (
        (Fork(parent="old", at=5), "hindcast import DIR"),
        (
            Fork(parent="old", at=5, archive=str(tmp_path / "moved")),
            r"write its new place into .*fork\.json",
        ),
    ):
        with pytest.raises(NoSuchRun, match=said):
            _ = RunHandle(tmp_path, "mine", resolved, fork=fork).parent


def test_a_run_with_damaged_settings_is_a_worded_error(tmp_path: Path) -> None:
    new(tmp_path, "mine")
    (tmp_path / "runs" / "mine" / "settings.toml").write_text("[learner]\nclip_low = 7\n")
    with pytest.raises(SettingsError, match=r"settings\.toml: learner\.options\.clip_low = 7 is not allowed"):
        open_run("mine", home=tmp_path)


async def test_a_broker_that_is_not_there_is_a_worded_error(tmp_path: Path) -> None:
    new(tmp_path, "mine", "log.url=nats://127.0.0.1:1", "log.connect_timeout_s=0.5")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "reader").write_text("secret")
    (tmp_path / "secrets" / "reader").chmod(0o600)
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 does not answer"):
        async with open_run("mine", home=tmp_path).connect_log():
            pass


def test_the_code_names_its_revision() -> None:
    assert code_revision() not in ("", "unknown")


def test_the_list_of_runs_says_which_are_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path))
    new(tmp_path, "old")
    resolved = resolve(environment={}, folder=tmp_path)
    write_down(plan_run(resolved, name="branch", home=tmp_path, fork=Fork(parent="old", at=5)))
    listed = CliRunner().invoke(app, ["run", "list", "--json"])
    found = {
        entry["run"]: (entry.get("parent"), entry.get("forked_at"))
        for entry in json.loads(listed.stdout)["runs"]
    }
    assert found == {"old": (None, None), "branch": ("old", 5)}
    assert "old at 5" in CliRunner().invoke(app, ["run", "list"]).stdout
