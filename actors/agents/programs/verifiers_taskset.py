"""An agent that plays a taskset of `verifiers` 0.4 and later: one episode, with the reward of the task's own functions.

    hindcast start --environment "verifiers_taskset:TASKSET [HARNESS]" --set actors.agent_python=PYTHON --until updates=40

PYTHON is the interpreter in which `verifiers` and the taskset are installed; a module in the folder where you call
`hindcast` is found, too. HARNESS is the program that asks the policy, `null` by default: a chat with the task's tools.
`verifiers` runs it in a process on this machine, by `uv`.
"""

import asyncio
import itertools
import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

import verifiers.v1 as vf

HELD_OUT = 1_000_000
"""Seeds from this one on are of held-out evaluations: they choose from the last tenth of the tasks."""


def task_of(taskset: vf.Taskset, seed: int) -> vf.Task:
    """The task of a seed."""
    if not taskset.bounded:
        return next(itertools.islice(taskset, seed % HELD_OUT, None))
    tasks = list(taskset)
    first = len(tasks) - max(1, len(tasks) // 10)
    split = (tasks[first:] if seed >= HELD_OUT else tasks[:first]) or tasks
    return split[seed % len(split)]


async def play(name: str, harness: str) -> dict[str, Any]:
    """Play the episode's task against the policy; returns the reward and the last answer."""
    sys.path.append(os.getcwd())
    agent = {"harness": {"id": harness}, "runtime": {"type": "subprocess"}}
    environment = vf.load_environment(vf.resolve_env_config({"taskset": {"id": name}, "agent": agent}))
    address = vf.EvalClientConfig(base_url=os.environ["OPENAI_BASE_URL"], api_key_var="OPENAI_API_KEY")
    task = task_of(environment.taskset, int(os.environ["HINDCAST_SEED"]))
    async with environment.serving():
        episode = await environment.run_episode(task, vf.ModelContext(model="policy", client=address))
    if not episode.ok:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        sys.exit(f"the episode of {name} failed: {errors}")  # abandoned: nothing is trained on it
    (trace,) = episode.traces
    return {"reward": trace.reward, "answer": trace.last_reply}


def main() -> None:
    """Play, and send the reward."""
    body = json.dumps(asyncio.run(play(sys.argv[1], *(sys.argv[2:] or ["null"])))).encode()
    urlopen(Request(f"{os.environ['HINDCAST_EPISODE_URL']}/reward", data=body, method="POST")).close()


if __name__ == "__main__":
    main()
