"""Agents of the user's own under the real commands: the example of docs/agents.md is trained, and one visits the store."""

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
VISITOR = """
import json, os
from http.cookiejar import CookieJar
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

page = build_opener(HTTPCookieProcessor(CookieJar())).open(os.environ["HINDCAST_START_URL"]).read().decode()
assert "<html" in page.lower(), page[:200]
messages = [{"role": "user", "content": os.environ["HINDCAST_INSTRUCTION"]}]
data = json.dumps({"model": "any", "messages": messages}).encode()
urlopen(Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", data=data, method="POST")).read()
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


def test_an_agent_visits_the_store_which_judges_by_its_own_record(tmp_path: Path) -> None:
    (tmp_path / "visitor.py").write_text(VISITOR)
    home = Home(tmp_path / "home", cwd=tmp_path)
    chosen = {
        "actors.agent": f"{shlex.quote(sys.executable)} visitor.py",
        "actors.answer_format": "text",
        "curriculum.environments": '["store"]',
        **NO_CHROMIUM,
    }
    found = home.json(
        "eval",
        "--suite",
        "store",
        "--family",
        "buy",
        "--episodes",
        "2",
        *settings(chosen, base={}),
        timeout_s=300,
    )
    assert (found["episodes"], found["lost"], found["rate"]) == (2, 0, 0.0)
