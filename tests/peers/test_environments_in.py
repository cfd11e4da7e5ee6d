"""Environments and tools of other projects, played by the programs of docs/protocols.md with the real packages."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hindcast.actors.agents.model_call import Reply
from hindcast.actors.agents.proxy import AgentProxy
from hindcast.actors.agents.world import AgentVenue, AgentWorld
from hindcast.actors.environments.agent.site import OwnTasks
from hindcast.actors.environments.python.plugin import PythonTasks
from hindcast.core.domain.action import Action
from hindcast.core.settings.schema import ActorSettings
from processes.system import ROOT, Home, settings
from servers.http_process import http_process

for package in ("verifiers", "openenv", "mcp"):
    pytest.importorskip(package, reason="run: make peers")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

AGENTS = ROOT / "docs" / "examples" / "agents"
ENVIRONMENTS = ROOT / "docs" / "examples" / "environments"
EPISODES = 2
VERIFIERS = """
import verifiers as vf
from datasets import Dataset

def graded(completion, answer, **_):
    assert all(one["content"] for one in completion)
    return 1.0 if answer == "odd" else 0.25

class Rounds(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **_):
        return [{"role": "user", "content": "Once more."}]

def load_environment(rounds=1):
    rows = Dataset.from_list([{"question": f"Number {i}", "answer": "odd" if i % 2 else "even"} for i in range(4)])
    rubric = vf.Rubric(funcs=[graded])
    if rounds == 1:
        return vf.SingleTurnEnv(dataset=rows, rubric=rubric)
    return Rounds(dataset=rows, rubric=rubric, max_turns=rounds)
"""
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
MCP = """
from mcp.server.fastmcp import FastMCP

server = FastMCP("stock")

@server.tool()
def stock(item: str) -> int:
    '''How many of an item are left.'''
    return {"lamp": 7}[item]

server.run()
"""


def evaluated(tmp_path: Path, name: str, *arguments: str) -> dict[str, Any]:
    """What `hindcast eval` reports of the shipped policy in an environment of another project."""
    chosen = {
        "actors.agent": f"{name}:{shlex.join(arguments)}",
        "actors.agent_python": sys.executable,
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


@pytest.fixture
def openenv_server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "server.py").write_text(OPENENV)
    with http_process([sys.executable, str(tmp_path / "server.py"), "PORT"], health="/health") as url:
        yield url


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


def test_the_example_of_a_verifiers_environment_is_trained_on_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ENVIRONMENTS / "pick_item.py", tmp_path)
    home = trained(tmp_path, "--environment", "verifiers:pick-item")
    asked = ("eval", "theirs", "--policy", "latest", "--suite", "verifiers", "--episodes", "8")
    monkeypatch.chdir(tmp_path)
    found = home.json(*asked, "--set", "actors.contexts=1", timeout_s=300)
    assert (found["episodes"], found["lost"]) == (8, 0), "the run's agent, in one process"


def test_the_example_of_an_openenv_server_is_trained_on_and_verified(tmp_path: Path) -> None:
    shutil.copy(ENVIRONMENTS / "colors_server.py", tmp_path)
    trained(tmp_path, "--environment", "openenv:colors_server:app --observation page")


def test_the_example_of_tools_as_buttons_is_trained_on_and_verified(tmp_path: Path) -> None:
    shutil.copy(ENVIRONMENTS.parent / "python" / "prices.py", tmp_path)
    program, server = AGENTS / "mcp_pages.py", ENVIRONMENTS / "prices_server.py"
    agent = shlex.join([sys.executable, str(program), sys.executable, str(server)])
    trained(tmp_path, "--environment", "prices:Prices", "--reward", "prices:right", "--agent", agent)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_verifiers_environment_gives_tasks_by_seed_and_its_rubric_s_reward(
    tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numbers_env.py").write_text(VERIFIERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = evaluated(tmp_path, "verifiers", "numbers-env", f"rounds={rounds}")
    assert (found["episodes"], found["lost"]) == (EPISODES, 0), found["lost_because"]
    assert (found["rate"], found["mean_reward"], found["mean_steps"]) == (0.5, 0.625, rounds)


def test_an_openenv_server_takes_answers_as_actions_and_its_rewards_add_up(
    tmp_path: Path, openenv_server: str
) -> None:
    found = evaluated(tmp_path, "openenv", openenv_server, "--action", "words", "--observation", "prompt")
    assert (found["episodes"], found["lost"]) == (EPISODES, 0), found["lost_because"]
    assert (found["rate"], found["mean_steps"]) == (0.5, 2.0)


async def test_the_tools_of_an_mcp_server_are_offered_and_called(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(MCP)
    (tmp_path / "questions.txt").write_text("How many vases?\nHow many lamps?\n")
    chosen = ActorSettings(
        agent=f"mcp:{shlex.join(['--question-file', 'questions.txt', sys.executable, 'server.py'])}",
        agent_python=sys.executable,
        agent_folder=str(tmp_path),
        answer_format="text",
        agent_wait_s=120.0,
    )
    world = AgentVenue(OwnTasks("agent"), AgentProxy(), chosen).open_world()
    assert isinstance(world, AgentWorld)
    offered: list[dict[str, Any]] = []

    def encode(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
        offered[:] = tools
        return [len(messages)]

    world.read_with(encode)
    answers = [
        *(_call({"item": item}) for item in ("lamp", "vase")),
        "There are 7 lamps.",
    ]
    await world.reset(PythonTasks("agent", ("own",), max_steps=5).task("own", 3))
    asked = []
    for text in answers:
        asked.append(world.call.text)
        world.answer(Reply(text=text, finish="stop", prompt_tokens=1, answer_tokens=1, version=1))
        outcome = await world.step(Action(name="Type", element=1, argument=text))
    assert outcome.done
    assert (await world.finish(None)).answer == "There are 7 lamps."
    await world.close()
    assert asked[:2] == ["How many lamps?", "7"]
    assert "'vase'" in asked[2]
    function = offered[0]["function"]
    assert (function["name"], function["description"]) == ("stock", "How many of an item are left.")
    assert function["parameters"]["required"] == ["item"]


def _call(arguments: dict[str, str]) -> str:
    return f"<tool_call>{json.dumps({'name': 'stock', 'arguments': arguments})}</tool_call>"
