"""An agent that shows the tools of an MCP server as the buttons of a page, for policies that know pages and no calls of tools.

    hindcast start --environment prices:Prices --reward prices:right --set actors.agent_episodes=1000 --until updates=20 \\
        --agent "PYTHON mcp_pages.py PYTHON prices_server.py"

PYTHON is the interpreter in which `mcp` and `openai` are installed. The rest of the command starts the server, which speaks
MCP on standard input and output and serves all episodes of this process. Tools with arguments are left out. A click calls a
tool, and the next page shows what it returned. The message of an `exit` is the answer, which is sent for `--reward` to judge.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from openai import AsyncOpenAI

CLICK = re.compile(r'Click", element="(\d+)"')
EXIT = re.compile(r'exit\(message="((?:[^"\\]|\\.)*)"\)')
CALLS = 3
"""Calls of the policy after which the episode ends."""


def episodes() -> Iterator[None]:
    """Put each episode's variables into the environment: those of this process, or a line of standard input for each."""
    if "HINDCAST_EPISODES" not in os.environ:
        yield
        return
    for line in sys.stdin:
        os.environ.update(json.loads(line))
        yield


async def play(server: ClientSession, tools: list[str]) -> str:
    """Let the policy call tools until it answers; returns the answer, empty if there is none."""
    asked, shown = f"Task Instruction: {os.environ['HINDCAST_INSTRUCTION']}\n\n", os.environ["HINDCAST_TEXT"]
    buttons = [f"button {name} [{number}]" for number, name in enumerate(tools, 1)]
    messages: list[Any] = []
    async with AsyncOpenAI(max_retries=0) as policy:
        for turn in range(CALLS):
            page = "\n".join(["page", f"text {shown}", *buttons])
            messages.append({"role": "user", "content": f"{asked}Round {turn}\n\n{page}"})
            reply = await policy.chat.completions.create(model="policy", messages=messages)
            answer = reply.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": answer})
            asked = ""
            if given := EXIT.search(answer):
                return given[1]
            clicked = CLICK.search(answer)
            if clicked is None or not 1 <= int(clicked[1]) <= len(tools):
                return ""
            result = await server.call_tool(tools[int(clicked[1]) - 1], {})
            shown = " ".join(part.text for part in result.content if part.type == "text")
    return ""


def end(answer: str) -> None:
    """End the episode with its answer."""
    data = json.dumps({"answer": answer}).encode()
    urlopen(Request(f"{os.environ['HINDCAST_EPISODE_URL']}/end", data=data, method="POST")).close()


async def serve(command: str, arguments: list[str]) -> None:
    """Start the server; play each episode, and end it with the answer."""
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as server:
        await server.initialize()
        offered = (await server.list_tools()).tools
        tools = [tool.name for tool in offered if not tool.inputSchema.get("properties")]
        for _ in episodes():  # between episodes nothing else waits for this loop
            end(await play(server, tools))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2:]))
