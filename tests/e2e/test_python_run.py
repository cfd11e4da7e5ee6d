"""The example of docs/python.md under the real command: a run without a browser, judged by a function, and verified."""

import re
from pathlib import Path

import pytest

from processes.system import ROOT, Home, settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "python.md"
SMALL = {"curriculum.group_size": "4", "curriculum.max_running": "16", "learner.options.group_batch": "2"}
NO_CHROMIUM = {"actors.browser_path": "/no/such/chromium"}


def test_a_class_and_a_function_of_the_working_folder_train_a_policy(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    example, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "colors.py").write_text(example)
    home = Home(tmp_path / "home", cwd=folder)
    python = ["--environment", "colors:Colors", "--reward", "colors:short"]
    done = home.json(
        "start",
        "colors",
        *python,
        *settings({**SMALL, **NO_CHROMIUM, "evaluation.every": "0"}, base={}),
        "--until",
        "updates=2",
        timeout_s=600,
    )
    assert done["updates"] >= 2
    report = home.json("verify", "colors", timeout_s=300)
    assert report["identical"], report["first_divergence"]
    assert not home.json("audit", "colors")["defects"]
    judged = home.json("rejudge", "colors", "--judge", "rules")
    assert judged["agreement"]["decided"] > 0
    replayed = home.json("replay", "steps", "colors", "--all")
    assert (replayed["differs"], replayed["failed"]) == (0, 0), replayed["differing"]
    assert replayed["same"] >= 16
