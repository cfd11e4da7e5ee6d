"""An agent that plays an environment of the `verifiers` package: a rollout an episode, scored by the environment's rubric.

    hindcast start --environment verifiers:ENVIRONMENT --set actors.agent_python=PYTHON --until updates=40

PYTHON is the interpreter in which `verifiers` is installed. ENVIRONMENT is the name that `verifiers.load_environment`
takes: of an installed package, or of a module in the folder where you call `hindcast`. Arguments for it follow as
NAME=VALUE; a VALUE that is no JSON is a text.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import verifiers as vf
from verifiers.types import ClientConfig

HELD_OUT = 1_000_000
"""Seeds from this one on are of held-out evaluations."""


def row_of(environment: vf.Environment, seed: int) -> dict[str, Any]:
    """The task of a seed: a row of the training set, or of the evaluation set for held-out seeds."""
    rows = environment.get_eval_dataset() if seed >= HELD_OUT else environment.get_dataset()
    return dict(rows[seed % len(rows)])


def episodes() -> Iterator[None]:
    """Put each episode's variables into the environment: those of this process, or a line of standard input for each."""
    if "HINDCAST_EPISODES" not in os.environ:
        yield
        return
    for line in sys.stdin:
        os.environ.update(json.loads(line))
        yield


async def play(environment: vf.Environment) -> dict[str, Any]:
    """Play the episode's task against the policy; returns the reward and the last answer."""
    policy = ClientConfig(
        api_base_url=os.environ["OPENAI_BASE_URL"], api_key_var="OPENAI_API_KEY", max_retries=0
    )
    task = row_of(environment, int(os.environ["HINDCAST_SEED"]))
    rollout = await environment.run_rollout(task, policy, "policy", {})
    if rollout.get("error"):
        sys.exit(f"the rollout failed: {rollout['error']}")  # abandoned: nothing is trained on it
    answers = [message for message in rollout["completion"] if message["role"] == "assistant"]
    return {"reward": rollout["reward"], "answer": answers[-1]["content"] if answers else None}


def value_of(text: str) -> Any:
    """An argument's value."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def main() -> None:
    """Play each episode, and end it with its reward."""
    name, *assignments = sys.argv[1:]
    sys.path.append(os.getcwd())
    arguments = {
        key: value_of(value) for key, _, value in (assignment.partition("=") for assignment in assignments)
    }
    environment = vf.load_environment(name, **arguments)
    with asyncio.Runner() as runner:
        for _ in episodes():
            body = json.dumps(runner.run(play(environment))).encode()
            urlopen(Request(f"{os.environ['HINDCAST_EPISODE_URL']}/end", data=body, method="POST")).close()


if __name__ == "__main__":
    main()
