"""Servers of OpenEnv as tasks here, and our tasks as a server of OpenEnv."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from openenv.core import GenericEnvClient

from processes.system import ROOT
from servers.http_process import http_process
from stories.played_environments import EPISODES, evaluated, trained

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

ENVIRONMENTS = ROOT / "docs" / "examples" / "environments"
OPENENV = """
import sys
import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

class Said(Action):
    words: str

class Shown(Observation):
    prompt: str

class Numbers(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **_):
        self.seed, self.rounds = seed, 0
        return Shown(prompt=f"Number {seed}")

    def step(self, action, timeout_s=None, **_):
        assert action.words
        self.rounds += 1
        return Shown(prompt="Once more.", reward=0.5 * (self.seed % 2), done=self.rounds == 2)

    @property
    def state(self):
        return State()

app = create_fastapi_app(Numbers, Said, Shown, max_concurrent_envs=16)
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""


@pytest.fixture
def openenv_server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "server.py").write_text(OPENENV)
    with http_process([sys.executable, str(tmp_path / "server.py"), "PORT"], health="/health") as url:
        yield url


def test_the_example_of_an_openenv_server_is_trained_on_and_verified(tmp_path: Path) -> None:
    shutil.copy(ENVIRONMENTS / "colors_server.py", tmp_path)
    trained(tmp_path, "--environment", "openenv:colors_server:app --observation page")


def test_an_openenv_server_takes_answers_as_actions_and_its_rewards_add_up(
    tmp_path: Path, openenv_server: str
) -> None:
    found = evaluated(tmp_path, "openenv", openenv_server, "--action", "words", "--observation", "prompt")
    assert (found["episodes"], found["lost"]) == (EPISODES, 0), found["lost_because"]
    assert (found["rate"], found["mean_steps"]) == (0.5, 2.0)


def click(button: str, page: str) -> str:
    """The answer that clicks on a button of a page."""
    found = re.search(rf"button {button} \[(\d+)\]", page)
    assert found is not None, page
    return f'do(action="Click", element="{found[1]}")'


@pytest.fixture
def server() -> Iterator[str]:
    command = [
        sys.executable,
        str(ENVIRONMENTS / "openenv_server.py"),
        "--port",
        "PORT",
        "--environment",
        "miniwob",
    ]
    with http_process(
        [*command, "--family", "click-test", "--family", "click-test-2"], health="/health"
    ) as url:
        yield url


@pytest.mark.browser
def test_openenv_s_client_plays_tasks_in_sessions_of_their_own(server: str) -> None:
    with GenericEnvClient(base_url=server).sync() as one, GenericEnvClient(base_url=server).sync() as other:
        first, second = one.reset(seed=2), other.reset(seed=3)
        assert not first.done
        assert first.observation["text"].startswith("Task Instruction: Click the button.\n\nRound 0\n\npage")
        shown = one.step({"message": "I do not know."})
        assert not shown.done
        assert shown.observation["text"].startswith("Round 1\n\npage")
        won = one.step({"message": click("Click Me!", shown.observation["text"])})
        assert (won.done, won.reward, won.observation["outcome"]) == (True, 1.0, "success")
        lost = other.step({"message": click("TWO", second.observation["text"])})
        assert (lost.done, lost.reward, lost.observation["outcome"]) == (True, 0.0, "failure")
        assert one.reset(seed=2).observation["text"] == first.observation["text"]
