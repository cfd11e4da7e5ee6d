"""browser-use, unmodified and in an environment of its own, plays tasks of the store through the policy's address."""

import os
import shlex
import shutil
from pathlib import Path

import pytest

from processes.system import ROOT, Home, settings

INTERPRETER = os.environ.get("BROWSER_USE_PYTHON", "")
AGENT = ROOT / "docs" / "examples" / "agents" / "browser_use_agent.py"
pytestmark = [
    pytest.mark.peers,
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not INTERPRETER,
        reason="BROWSER_USE_PYTHON names no interpreter with browser-use (docs/agents.md says how to make one)",
    ),
]


def test_browser_use_is_played_recorded_and_judged(tmp_path: Path) -> None:
    shutil.copy(AGENT, tmp_path)
    home = Home(tmp_path / "home", cwd=tmp_path)
    home.environment["PYTHONPATH"] = str(Path(__file__).parent)
    chosen = {
        "policy.engine": "browser_use_engine:ENGINE",
        "curriculum.environments": '["store"]',
        "curriculum.tasks": '["store/find_price:1"]',
        "curriculum.group_size": "4",
        "curriculum.max_running": "4",
        "evaluation.every": "0",
        "actors.contexts": "2",
        "actors.max_prompt_tokens": "30000",
        "actors.max_answer_tokens": "1024",
        "actors.browser_path": "/no/such/chromium",
    }
    command = f"{shlex.quote(INTERPRETER)} {AGENT.name}"
    asked = ["--agent", command, *settings(chosen, base={}), "--until", "episodes=4"]
    assert home.json("start", "theirs", *asked, timeout_s=400)["episodes"] >= 4
    listed = home.json("episode", "list", "theirs", "--state", "ended")
    episodes = listed["episodes"] if isinstance(listed, dict) else listed
    outcomes = {one["outcome"] for one in episodes if one["outcome"]}
    assert outcomes == {"success", "failure"}, "the store judges the fixed answers, right and wrong ones"
    assert {one["steps"] for one in episodes} == {2}, "a search, then the price"
    assert not home.json("audit", "theirs")["defects"]
