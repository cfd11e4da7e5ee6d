"""Tools of MCP servers, called by the policy."""

import json
import shlex
import shutil
import sys
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
from processes.system import ROOT
from stories.played_environments import trained

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

EXAMPLES = ROOT / "docs" / "examples"
MCP = """
from mcp.server.fastmcp import FastMCP

server = FastMCP("stock")

@server.tool()
def stock(item: str) -> int:
    '''How many of an item are left.'''
    return {"lamp": 7}[item]

server.run()
"""


def test_the_example_of_tools_as_buttons_is_trained_on_and_verified(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "python" / "prices.py", tmp_path)
    program, server = EXAMPLES / "agents" / "mcp_pages.py", EXAMPLES / "environments" / "prices_server.py"
    agent = shlex.join([sys.executable, str(program), sys.executable, str(server)])
    trained(tmp_path, "--environment", "prices:Prices", "--reward", "prices:right", "--agent", agent)


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
