"""`hindcast bench loop` for one short seed: the real system trains, the base and its versions are measured."""

import json
from pathlib import Path

import pytest

from processes.system import Home

pytestmark = [pytest.mark.broker, pytest.mark.browser]


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_a_seed_is_measured_trained_and_measured_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    families = json.dumps(["miniwob/click-tab-2", "miniwob/click-collapsible-2"])
    said = home.json(
        *("bench", "loop", "--seed", "5", "--updates", "4", "--episodes", "10", "--points", "1"),
        *("--set", f"curriculum.families={families}", "--set", "learner.options.group_batch=1"),
        *("--folder", str(tmp_path / "loop")),
        timeout_s=600,
    )
    (seed,) = said["seeds"]
    assert seed["before"]["episodes"] + seed["before"]["lost"] == 10
    assert seed["after"]["episodes"] + seed["after"]["lost"] == 10
    assert set(seed["before"]["by_task"]) == {"click-tab-2", "click-collapsible-2"}
    assert seed["updates"] >= 4
    assert seed["mastered_before"]["episodes"] + seed["mastered_before"]["lost"] == 16
    assert seed["curve"][-1]["success"] == seed["after"]["rate"]
    kept = Home(tmp_path / "loop" / "seed-5")
    verified = kept.json("verify", "loop-5", timeout_s=200)
    assert verified["identical"]
