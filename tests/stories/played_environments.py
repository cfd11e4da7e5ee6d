"""Runs and evaluations of other projects' environments, which programs play as agents."""

import shlex
import sys
from pathlib import Path
from typing import Any

from processes.system import Home, settings

EPISODES = 2
SMALL = {
    "actors.agent_python": sys.executable,
    "actors.agent_episodes": "1000",
    "actors.agent_wait_s": "120",
    "actors.contexts": "2",
    "actors.browser_path": "/no/such/chromium",
    "curriculum.group_size": "4",
    "curriculum.max_running": "8",
    "evaluation.every": "0",
    "learner.options.group_batch": "1",
}


def evaluated(tmp_path: Path, name: str, *arguments: str, wait_s: float = 60.0) -> dict[str, Any]:
    """What `hindcast eval` reports of the shipped policy in an environment of another project.

    `wait_s`: how long its program may take to ask for the first time, in seconds.
    """
    chosen = {
        "actors.agent": f"{name}:{shlex.join(arguments)}",
        "actors.agent_python": sys.executable,
        "actors.agent_wait_s": str(wait_s),
        "actors.answer_format": "text",
        "actors.browser_path": "/no/such/chromium",
        "curriculum.environments": f'["{name}"]',
    }
    (tmp_path / "work").mkdir()
    found: dict[str, Any] = Home(tmp_path / "home", cwd=tmp_path / "work").json(
        "eval",
        "--suite",
        name,
        "--episodes",
        str(EPISODES),
        *settings(chosen, base={}),
        timeout_s=300,
    )
    return found


def trained(tmp_path: Path, *options: str) -> Home:
    """The home of a run `theirs` of two updates of the shipped policy, checked to the bit. `options`: those of `start`."""
    home = Home(tmp_path / "home", cwd=tmp_path)
    chosen = (*options, *settings(SMALL, base={}))
    done = home.json("start", "theirs", *chosen, "--until", "updates=2", timeout_s=600)
    assert done["updates"] >= 2
    report = home.json("verify", "theirs", timeout_s=300)
    assert report["identical"], report["first_divergence"]
    assert not home.json("audit", "theirs")["defects"]
    return home
