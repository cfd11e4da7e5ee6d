"""`hindcast bench why` on a real run of the forms in docs/examples/python: pulls, a derived run, and both policies at play."""

from pathlib import Path

import pytest

from processes.system import ROOT, Home, settings

pytestmark = [pytest.mark.broker, pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = {
    "curriculum.families": '["forms:Forms/colors"]',
    "curriculum.group_size": "4",
    "learner.options.group_batch": "2",
    "learner.epochs": "1",
    "evaluation.every": "0",
}
"""One family: its groups are trained on only if their members differ, so there is something to estimate by."""


def test_what_moved_a_family_is_left_out_and_both_policies_play(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", cwd=ROOT / "docs" / "examples" / "python")
    home.json(
        "start",
        "forms",
        "--environment",
        "forms:Forms",
        *settings(SMALL, base={}),
        "--until",
        "updates=2",
        timeout_s=600,
    )
    found = home.json(
        "bench", "why", "forms:Forms/colors", "forms", "--cases", "1", "--tasks", "4", timeout_s=600
    )
    assert found["updates"] == 2
    (case,) = found["cases"]
    assert case["pull"] != 0
    assert case["episodes"] > 0
    assert case["effect"]["tasks"] == 4
    assert len(home.json("run", "list")["runs"]) == 2
