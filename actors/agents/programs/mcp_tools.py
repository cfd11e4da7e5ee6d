"""An agent whose tools are those of an MCP server; it ends when the policy answers without calling one.

    hindcast start --environment "mcp:--question-file FILE COMMAND…" --reward my_module:reward \\
        --set actors.agent_python=PYTHON --until updates=40

PYTHON is the interpreter in which `mcp` and `openai` are installed. COMMAND starts the server, which speaks MCP on standard input and
output; each episode starts one of its own. FILE has a question per line, of which the seed chooses one; the instruction
of the environment is asked without it. The last answer is sent for `--reward` to judge.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from openai import AsyncOpenAI


def episodes() -> Iterator[None]:
    """Put each episode's variables into the environment: those of this process, or a line of standard input for each."""
    if "HINDCAST_EPISODES" not in os.environ:
        yield
        return
    for line in sys.stdin:
        os.environ.update(json.loads(line))
        yield


def question_of(file: str | None) -> str:
    """The line of the file that the seed chooses, or the environment's instruction."""
    if file is None:
        return os.environ["HINDCAST_INSTRUCTION"]
    with open(file, encoding="utf-8") as lines:
        questions = [line.strip() for line in lines if line.strip()]
    return questions[int(os.environ["HINDCAST_SEED"]) % len(questions)]


async def called(server: ClientSession, name: str, arguments: str) -> str:
    """The text that a tool returns, or its error."""
    try:
        result = await server.call_tool(name, json.loads(arguments))
    except Exception as error:  # the policy's mistakes are its own to read
        return f"error: {error}"
    return "\n".join(block.text for block in result.content if block.type == "text")


async def play(server: ClientSession, question: str, *, calls: int) -> str:
    """Let the policy call tools until it answers; returns the answer."""
    tools = [tool.model_dump(by_alias=True) for tool in (await server.list_tools()).tools]
    offered: list[Any] = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"] or "",
                "parameters": tool["inputSchema"],
            },
        }
        for tool in tools
    ]
    policy = AsyncOpenAI(max_retries=0)
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(calls):
        reply = await policy.chat.completions.create(model="policy", messages=messages, tools=offered)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            text = await called(server, call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    return ""


async def answer_of(options: argparse.Namespace) -> str:
    """Start the server and play; returns the policy's answer."""
    command, *arguments = options.command
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as server:
        await server.initialize()
        return await play(server, question_of(options.question_file), calls=options.calls)


def main() -> None:
    """Play each episode, and end it with the answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--question-file", help="a question per line; default: the environment's instruction")
    parser.add_argument(
        "--calls", type=int, default=10, help="calls of the policy after which the episode ends"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command that starts the server")
    options = parser.parse_args()
    for _ in episodes():
        body = json.dumps({"answer": asyncio.run(answer_of(options))}).encode()
        urlopen(Request(f"{os.environ['HINDCAST_EPISODE_URL']}/end", data=body, method="POST")).close()


if __name__ == "__main__":
    main()
