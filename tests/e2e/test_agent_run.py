"""Agents of the user's own under the real commands: two examples of docs/agents.md, and one that rewrites its messages."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from processes.system import ROOT, Home, settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

EXAMPLE = ROOT / "docs" / "examples" / "agents" / "color_agent.py"
SMALL = {"curriculum.group_size": "4", "curriculum.max_running": "16", "learner.options.group_batch": "2"}
NO_CHROMIUM = {"actors.browser_path": "/no/such/chromium"}
SHOPPER = EXAMPLE.with_name("shop_agent.py")
REWRITES = """
import os
from openai import OpenAI
from urllib.request import Request, urlopen

def ask(*contents):
    turns = [{"role": ("user", "assistant")[place % 2], "content": one} for place, one in enumerate(contents)]
    return OpenAI(max_retries=0).chat.completions.create(model="any", messages=turns).choices[0].message.content

first = ask("Click on red.")
ask("Click on red.", first, "Click on blue.")
ask("Red is done. Click on blue.")
data = b'{"reward": 1.0, "answer": "done"}'
urlopen(Request(os.environ["HINDCAST_EPISODE_URL"] + "/reward", data=data, method="POST"))
"""


@pytest.mark.slow
def test_an_agent_with_openai_s_client_is_trained_and_verified(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    shutil.copy(EXAMPLE, folder)
    home = Home(tmp_path / "home", cwd=folder)
    command = f"{shlex.quote(sys.executable)} color_agent.py"
    done = home.json(
        "start",
        "colors",
        "--agent",
        command,
        *settings({**SMALL, **NO_CHROMIUM, "evaluation.every": "0"}, base={}),
        "--until",
        "updates=2",
        timeout_s=600,
    )
    assert done["updates"] >= 2
    report = home.json("verify", "colors", timeout_s=300)
    assert report["identical"], report["first_divergence"]
    assert not home.json("audit", "colors")["defects"]
    episodes = home.json("episode", "list", "colors", "--state", "ended")
    listed = episodes["episodes"] if isinstance(episodes, dict) else episodes
    assert {one["outcome"] for one in listed if one["outcome"]} <= {"success", "failure"}
    origins = str(home.json("lineage", "update", "1", "--run", "colors"))
    assert any(one["episode"] in origins for one in listed)
    agreement = home.json("rejudge", "colors", "--judge", "rules")["agreement"]
    assert agreement["decided"] >= 8
    assert agreement["agreed"] == agreement["decided"], "the evidence holds the reward that the agent sent"


def test_an_agent_with_a_browser_of_its_own_answers_questions_about_the_store(tmp_path: Path) -> None:
    shutil.copy(SHOPPER, tmp_path)
    home = Home(tmp_path / "home", cwd=tmp_path)
    chosen = {
        "actors.agent": f"{shlex.quote(sys.executable)} {SHOPPER.name}",
        "actors.answer_format": "text",
        "curriculum.environments": '["store"]',
        **NO_CHROMIUM,
    }
    asked = ["--suite", "store", "--family", "find_price", "--episodes", "3"]
    found = home.json("eval", *asked, *settings(chosen, base={}), timeout_s=300)
    assert (found["episodes"], found["lost"]) == (3, 0)
    assert found["rate"] > 0.5, "the shipped policy reads the agent's pages as it does ours"


@pytest.mark.slow
def test_a_rewritten_chat_is_a_context_of_its_own_wherever_it_is_shown_and_is_replayed(
    tmp_path: Path,
) -> None:
    (tmp_path / "rewrites.py").write_text(REWRITES)
    home = Home(tmp_path / "home", cwd=tmp_path)
    chosen = {**SMALL, **NO_CHROMIUM, "evaluation.every": "0", "curriculum.max_running": "4"}
    command = f"{shlex.quote(sys.executable)} rewrites.py"
    asked = ["--agent", command, *settings(chosen, base={}), "--until", "episodes=1"]
    home.json("start", "mine", *asked, timeout_s=300)
    sql = "SELECT episode FROM episodes_current WHERE state = 'ended' ORDER BY episode"
    episode = home.json("sql", sql, "mine")["rows"][0][0]
    detail = home.json("episode", "show", episode, "--run", "mine")
    assert [step["context"] for step in detail["steps"]] == [0, 0, 1]
    assert "context" in home.run("episode", "show", episode, "--run", "mine").stdout
    traced = home.json("lineage", "step", f"{episode}/2", "--run", "mine")
    assert traced["backward"]["facts"]["context"] == 1
    home.json("export", "mine", "--to", "frozen", "--format", "html")
    page = (tmp_path / "frozen" / "episodes" / f"{episode}.html").read_text()
    assert page.count(">context 1</small>") == 1
    assert not home.json("audit", "mine")["defects"]
    replayed = home.json("replay", "steps", "mine", "--all", "--start-agent", timeout_s=300)
    assert (replayed["differs"], replayed["failed"]) == (0, 0), replayed
    assert replayed["same"] >= 1
    (tmp_path / "rewrites.py").write_text(REWRITES.replace("Red is done.", "Red is chosen."))
    asked = ("replay", "steps", "mine", "--episode", episode, "--start-agent")
    (found,) = home.json(*asked, timeout_s=300, status=3)["differing"]
    assert (found["difference"]["what"], found["difference"]["step"]) == ("prompt", 2)
    assert any("Red is chosen." in line for line in found["difference"]["lines"])
