"""The read model of a run that no projector works on: a command folds it when it asks, alone, and a page never does."""

import asyncio
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import hindcast.app.runs.folded_read_model
from hindcast.app.cli import app as cli
from hindcast.app.page.runs import OpenRuns
from hindcast.app.runs.folded_read_model import bring_up, fold_now, sole_writer
from hindcast.app.runs.runs import RunHandle
from hindcast.storage.readmodel.database import ReadModelUnavailable
from hindcast.storage.readmodel.projector import run_projector
from hindcast.storage.readmodel.rebuild import rebuild
from hindcast.storage.readmodel.run_queries import run_summary
from processes.system import COMMAND
from stories.recorded_home import make_home, tell
from stories.synthetic_run import Told, a_run

FACTS: list[Told] = a_run(3, groups=4)
EARLIER = 60
ASKED_S = 120.0


@pytest.fixture
def handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunHandle:
    """A run whose log nobody has folded, as after `record` or `fork`."""
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return asyncio.run(make_home(tmp_path / "home", FACTS[:EARLIER]))


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def reached(handle: RunHandle) -> int:
    model = handle.read_model()
    position = model.position()
    model.close()
    return position


@pytest.mark.parametrize(
    "words",
    [
        ("episode", "list"),
        ("policy", "list"),
        ("task", "list"),
        ("run", "list"),
        ("run", "show"),
        ("run", "compare", "tale", "tale"),
        ("lineage", "policy", "0"),
        ("curriculum", "show"),
        ("export", "--to", "out"),
    ],
    ids=" ".join,
)
def test_a_command_folds_what_nobody_has_folded(
    handle: RunHandle, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(handle.home)
    result = call(*words)
    assert result.exit_code == 0, f"{result.output}{result.exception or ''}"
    assert "no read model" not in result.output
    assert reached(handle) == EARLIER


def test_what_was_added_since_is_folded_at_the_next_question(handle: RunHandle) -> None:
    assert json.loads(call("run", "show", "--json").stdout)["position"] == EARLIER
    asyncio.run(tell(handle, FACTS[EARLIER:]))
    assert json.loads(call("run", "list", "--json").stdout)["runs"][0]["position"] == len(FACTS)

    async def rebuilt() -> bool:
        async with handle.connect_log() as log:
            return (await rebuild(log, handle.database_url)).identical

    assert asyncio.run(rebuilt())


@pytest.mark.process
def test_commands_at_once_fold_once_and_all_answer(handle: RunHandle) -> None:
    words = [*COMMAND, "run", "show", "--json"]
    asked = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    for one in asked:
        out, err = one.communicate(timeout=ASKED_S)
        assert (one.returncode, err) == (0, b"")
        assert json.loads(out)["position"] == EARLIER


def test_a_projector_at_work_is_left_to_it(handle: RunHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunHandle, "is_running", lambda run, role="bus": role == "projector")
    assert bring_up([handle]) == {}
    assert reached(handle) == 0


async def test_a_projector_that_begins_while_a_command_folds_waits_for_it(handle: RunHandle) -> None:
    async def project() -> None:
        async with handle.connect_log() as log, sole_writer(handle) as alone:
            assert alone
            await run_projector(log, handle.database_url, handle.settings.storage, until=EARLIER)

    async with asyncio.TaskGroup() as group, sole_writer(handle) as alone:
        assert alone
        projecting = group.create_task(project())
        async with sole_writer(handle, unless=lambda: True) as also:
            assert not also
        await asyncio.sleep(0)
        assert not projecting.done()
        assert reached(handle) == 0
    assert reached(handle) == EARLIER


async def test_who_waits_too_long_for_another_answers_without(
    handle: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hindcast.app.runs.folded_read_model, "LOCK_WAIT_S", 0.0)
    async with sole_writer(handle), handle.connect_log() as log:
        await fold_now(handle, log)
    assert reached(handle) == 0


def test_where_the_log_cannot_be_read_what_is_there_answers_and_says_so(handle: RunHandle) -> None:
    assert call("run", "show").exit_code == 0
    streams = handle.home / "broker"
    streams.rename(handle.home / "moved")
    result = call("run", "show", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["position"] == EARLIER
    assert f"answered as of position {EARLIER}, later events could not be read: " in result.stderr
    (handle.folder / "readmodel.sqlite").unlink()
    refused = call("run", "show")
    assert "hindcast rebuild" not in str(refused.exception)
    assert "log" in str(refused.exception)


def test_a_page_never_folds(handle: RunHandle) -> None:
    runs = OpenRuns(handle.home)
    with pytest.raises(ReadModelUnavailable, match="no read model yet"), runs.asking("tale", None):
        pass
    runs.close()
    assert reached(handle) == 0


def test_folding_is_safe_from_another_thread_of_the_same_process(handle: RunHandle) -> None:
    """Locks of files are held by an open file, not by a process."""
    failures: list[object] = []
    threads = [threading.Thread(target=lambda: failures.append(bring_up([handle]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ASKED_S)
    assert failures == [{}, {}]
    with handle.read_model().reading() as connection:
        assert run_summary(connection).position == EARLIER
    assert os.stat(handle.folder / hindcast.app.runs.folded_read_model.LOCK_FILE).st_mode & 0o077 == 0
