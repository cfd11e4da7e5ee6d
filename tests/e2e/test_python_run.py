"""The examples of docs/python.md under the real command: runs without a browser, judged by functions."""

import hashlib
import html
import json
import re
from pathlib import Path

import pytest

from processes.system import ROOT, Home, settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "python.md"
SMALL = {"curriculum.group_size": "4", "curriculum.max_running": "16", "learner.options.group_batch": "2"}
NO_CHROMIUM = {"actors.browser_path": "/no/such/chromium"}
CHOSEN = settings({**SMALL, **NO_CHROMIUM, "evaluation.every": "0"}, base={})


def example(number: int) -> str:
    """A block of Python of the page."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[number]


def test_seven_lines_and_a_reward_train_a_policy_and_the_log_has_the_digest_of_their_source(
    tmp_path: Path,
) -> None:
    code = example(0)
    environment, reward = code.split("\n\n\n")
    lines = [len([line for line in part.splitlines() if line]) for part in (environment, reward)]
    assert lines == [7, 2], "as the page says"
    (tmp_path / "letters.py").write_text(code)
    home = Home(tmp_path / "home", cwd=tmp_path)
    (command,) = re.findall(
        r"^hindcast (start --environment letters.*) --until", PAGE.read_text(), re.MULTILINE
    )
    assert home.json(*command.split(), *CHOSEN, "--until", "updates=2", timeout_s=600)["updates"] >= 2
    started = json.loads(home.run("log", "show", "1", "--json").stdout.splitlines()[0])
    plugins = started["payload"]["plugins"]
    mine = {one["name"]: one for one in plugins if one["module"] == "letters"}
    assert set(mine) == {"letters:Letters", "letters:reward"}
    digest = hashlib.sha256(b"letters.py\0" + code.encode() + b"\0").hexdigest()
    assert {one["source"] for one in mine.values()} == {digest}
    judged = home.json("sql", "SELECT DISTINCT judge, judge_version, reward FROM verdicts")["rows"]
    version = f"1-{hashlib.sha256(code.encode()).hexdigest()[:8]}"
    assert {(judge, of) for judge, of, _ in judged} == {("letters:reward", version)}
    assert {0.0, 1.0} <= {value for *_, value in judged}
    assert not home.json("audit")["defects"]


def test_a_reward_that_raises_is_undecided_with_its_line_on_every_page_and_trains_nothing(
    tmp_path: Path,
) -> None:
    raising = example(0).replace("reward / len(answers)", "reward / answers")
    (tmp_path / "letters.py").write_text(raising)
    line = 1 + raising.splitlines().index("    return reward / answers")
    place = tmp_path / "letters.py"
    words = f"letters:reward raised TypeError: unsupported operand type(s) for /: 'float' and 'tuple' ({place}:{line})"
    home = Home(tmp_path / "home", cwd=tmp_path)
    python = ["--environment", "letters:Letters", "--reward", "letters:reward"]
    started = home.run("start", *python, *CHOSEN, "--until", "episodes=8", timeout_s=600)
    assert words in started.stdout + started.stderr
    listed = home.json("episode", "list", "--outcome", "undecided")["episodes"]
    assert len(listed) > 0
    assert not home.json("episode", "list", "--outcome", "failure")["episodes"]
    episode = listed[0]["episode"]
    (verdict,) = home.json("episode", "show", episode)["verdicts"]
    assert (verdict["outcome"], verdict["reason"]) == ("undecided", words)
    home.json("export", "--to", "frozen", "--format", "html")
    page = (tmp_path / "frozen" / "episodes" / f"{episode}.html").read_text()
    assert words in html.unescape(page)
    assert home.json("sql", "SELECT count(*) FROM batches")["rows"] == [[0]]


def test_a_class_and_a_function_of_the_working_folder_train_a_policy(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "colors.py").write_text(example(1))
    home = Home(tmp_path / "home", cwd=folder)
    python = ["--environment", "colors:Colors", "--reward", "colors:short"]
    done = home.json(
        "start",
        "colors",
        *python,
        *CHOSEN,
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
