"""`hindcast bench recipes` over a table of two small rows: run, kept, and not run again."""

import json
from pathlib import Path

import pytest

from processes.system import Home

pytestmark = [pytest.mark.broker, pytest.mark.browser]

TABLE = """
reported_seeds = [5]
tuning_seeds = [1]
temperatures = [1.0]
episodes = 8
points = 1
edition = 2
minutes = 8.0
families = ["miniwob/click-tab-2", "miniwob/click-collapsible-2"]

[[rows]]
name = "base"
recipe = "mgrpo"
updates = 0

[[rows]]
name = "trained"
recipe = "mgrpo"
updates = 2
set = ["learner.options.group_batch=1", "learner.epochs=1"]

[[rows]]
name = "further"
recipe = "mgrpo"
from = "trained"
updates = 2
set = ["learner.options.group_batch=1", "learner.epochs=1"]

[[rows]]
name = "never"
recipe = "arpo"
updates = 2

[[claims]]
name = "trained over base"
ours = "trained"
theirs = "base"
paper = 1.5

[[claims]]
name = "further over trained"
ours = "further"
theirs = "trained"
paper = 1.1
"""


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_rows_are_measured_kept_and_not_run_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (tmp_path / "table.toml").write_text(TABLE)
    command = (
        "bench",
        "recipes",
        "--table",
        str(tmp_path / "table.toml"),
        "--folder",
        str(tmp_path / "kept"),
        "--results",
        str(tmp_path / "results"),
    )
    said = home.json(*command, timeout_s=600)
    found = {one["row"]: one for one in said["results"]}
    assert set(found) == {"base", "trained", "further"}
    (untrained,) = found["base"]["measurements"]
    assert sum(len(outcomes) for outcomes in untrained["outcomes"].values()) == 8
    assert found["trained"]["updates"] >= 2
    assert len(found["trained"]["measurements"]) == 1
    kept = {path: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    again = home.json(*command, timeout_s=100)
    assert json.dumps(again["results"], sort_keys=True) == json.dumps(said["results"], sort_keys=True)
    assert {path: path.read_bytes() for path in (tmp_path / "results").iterdir()} == kept
    report = (tmp_path / "kept" / "report.md").read_text()
    assert "| never | 5 | not run |" in report
    assert "| trained over base |" in report
    trained = Home(tmp_path / "kept" / found["trained"]["home"])
    for row in ("trained", "further"):
        name = f"{row}-5-{found[row]['identity']}"
        assert trained.json("verify", name, timeout_s=200)["identical"]
