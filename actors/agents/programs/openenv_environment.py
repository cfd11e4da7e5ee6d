"""An agent that plays an OpenEnv server: each observation is a user's turn, each answer an action.

    hindcast start --environment "openenv:SERVER [--action FIELD] [--observation FIELD]" \\
        --set actors.agent_python=PYTHON --until updates=40

PYTHON is the interpreter in which `openenv` is installed. SERVER is the address of a server, or the application of one as
MODULE:APP, which this process then serves to itself; a module in the folder where you call `hindcast` is found. The answer becomes the action {FIELD: answer}. The turn is one
field of the observation, or without `--observation` all of it as JSON. The reward is the sum of the steps' rewards.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from openai import OpenAI
from openenv.core import GenericEnvClient

HIDDEN = ("done", "reward", "metadata")
"""Fields of every observation that say nothing of what is seen."""


SERVER_S = 60.0
"""How long a server that this process starts may take until it answers."""


@contextmanager
def served(server: str) -> Iterator[str]:
    """The address of a server: the one that is given, or that of an application (MODULE:APP), served during the block."""
    if "://" in server:
        yield server
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        server,
        "--app-dir",
        ".",
        "--port",
        port,
        "--log-level",
        "warning",
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()  # it serves this process alone, and holds nothing that it must write
        process.wait()


def wait_for(url: str, process: "subprocess.Popen[bytes]", server: str) -> None:
    """Wait until a server answers. Ends the program where it does not."""
    limit = time.monotonic() + SERVER_S
    while process.poll() is None and time.monotonic() < limit:
        try:
            urlopen(url, timeout=1.0).close()
            return
        except (URLError, TimeoutError):
            time.sleep(0.1)
    sys.exit(f"{server}: uvicorn does not serve it (status {process.poll()}, limit {SERVER_S:g} s)")


def text_of(observation: dict[str, Any], field: str | None) -> str:
    """The observation as the text of a turn."""
    if field is not None:
        return str(observation[field])
    return json.dumps({name: value for name, value in observation.items() if name not in HIDDEN})


def episodes() -> Iterator[None]:
    """Put each episode's variables into the environment: those of this process, or a line of standard input for each."""
    if "HINDCAST_EPISODES" not in os.environ:
        yield
        return
    for line in sys.stdin:
        os.environ.update(json.loads(line))
        yield


def play(options: argparse.Namespace, url: str) -> dict[str, Any]:
    """Play the episode's task against the policy; returns the sum of rewards and the last answer."""
    policy, messages, total, answer = OpenAI(max_retries=0), [], 0.0, ""
    with GenericEnvClient(base_url=url).sync() as environment:
        result = environment.reset(seed=int(os.environ["HINDCAST_SEED"]))
        for _ in range(options.steps):
            if result.done:
                break
            messages.append({"role": "user", "content": text_of(result.observation, options.observation)})
            reply = policy.chat.completions.create(model="policy", messages=messages)
            answer = reply.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": answer})
            result = environment.step({options.action: answer})
            total += float(result.reward or 0.0)
    return {"reward": total, "answer": answer}


def main() -> None:
    """Play each episode, and end it with its reward."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server", help="address such as http://localhost:8000, or MODULE:APP")
    parser.add_argument("--action", default="message", help="field of the action that takes the answer")
    parser.add_argument("--observation", help="field of the observation that is shown; default: all as JSON")
    parser.add_argument("--steps", type=int, default=20, help="steps after which the episode ends")
    options = parser.parse_args()
    with served(options.server) as url:
        for _ in episodes():
            body = json.dumps(play(options, url)).encode()
            urlopen(Request(f"{os.environ['HINDCAST_EPISODE_URL']}/end", data=body, method="POST")).close()


if __name__ == "__main__":
    main()
