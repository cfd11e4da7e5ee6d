"""`make gpu` at the size of a toy, on the CPU: a run that is opened, killed, resumed and verified, and a report that is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes.system import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.broker, pytest.mark.browser]


def test_the_steps_of_a_run_leave_a_report_and_are_not_repeated(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.gpu_protocol", str(tmp_path), "--size", "toy", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        ran = subprocess.run(
            [*command, "--updates", "4", "--steps", "machine,resume,engine"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    assert ran.stdout == "", "what has a record is not run again, and the engine has no vLLM here"
    found = json.loads((tmp_path / "resume.json").read_text())["found"]
    assert found["identical"], found["first_divergence"]
    assert found["updates"] >= 4
    report = (tmp_path / "report.md").read_text()
    assert "## machine" in report
    assert "Failed" not in report
    assert report.count("Not run.") == 3
