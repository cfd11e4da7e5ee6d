"""browser-use, unmodified and in an environment of its own, plays tasks of the store through the policy's address."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from processes.system import ROOT, Home, settings

AGENT = ROOT / "docs" / "examples" / "agents" / "browser_use_agent.py"
TAB = "(?i)tab:? [0-9A-F]{4}"
"""browser-use names tabs by ids that Chromium draws, which differ each time."""
pytestmark = [pytest.mark.peers, pytest.mark.broker, pytest.mark.timeout(900)]


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
    command = f"{shlex.quote(sys.executable)} {AGENT.name}"
    asked = ["--agent", command, *settings(chosen, base={}), "--until", "episodes=4"]
    assert home.json("start", "theirs", *asked, timeout_s=400)["episodes"] >= 4
    listed = home.json("episode", "list", "theirs", "--state", "ended")
    episodes = listed["episodes"] if isinstance(listed, dict) else listed
    outcomes = {one["outcome"] for one in episodes if one["outcome"]}
    assert outcomes == {"success", "failure"}, "the store judges the fixed answers, right and wrong ones"
    assert {one["steps"] for one in episodes} == {2}, "a search, then the price"
    sql = "SELECT context, answer_tokens, prompt_tokens FROM steps ORDER BY position"
    steps = home.json("sql", sql, "theirs")["rows"]
    assert all(tokens and prompt > 5000 for _, tokens, prompt in steps), (
        "the exact ids of browser-use's prompts"
    )
    won = next(one["episode"] for one in episodes if one["outcome"] == "success")
    shown = home.json("episode", "show", won, "--run", "theirs")
    assert [step["context"] for step in shown["steps"]] == [0, 1], "it writes its messages anew for each call"
    lineage = home.json("lineage", "episode", won, "--run", "theirs")
    found = {
        branch["relation"]: branch["total"]
        for way in ("backward", "forward")
        for branch in lineage[way]["branches"]
    }
    assert (found["attempt at"], found["took"], found["judged by"]) == (1, 2, 1)
    asked = ("replay", "steps", "theirs", "--all", "--start-agent", "--ignoring", TAB, "--json")
    again = json.loads(home.run(*asked, timeout_s=400).stdout.splitlines()[-1])
    assert (again["episodes"], again["failed"], again["skipped"]) == (4, 0, 0), again["left_out"]
    # Chromium numbers a page's elements by chance, too: on busy cores only the second replay of an episode may be alike
    chance = [one for one in again["differing"] if one["cause"]["kind"] == "chance"]
    assert again["same"] + len(chance) >= 1, again["differing"]
    assert not home.json("audit", "theirs")["defects"]
