"""Hindcast's web tasks as an environment of the `verifiers` package: `vf.load_environment("hindcast-tasks")`.

A row of its data set is a seed. A rollout plays the task in a real browser: each turn of the user is a page, each answer an
action, and the reward is that of the task's own evaluator.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import verifiers as vf
from datasets import Dataset

from hindcast.api import HindcastError
from hindcast.api.text_environment import Shown, TextEnvironment

HELD_OUT = 1_000_000
"""First seed of the evaluation set."""


async def evaluated(state: vf.State) -> float:
    """The reward of the task's evaluator; 0 for a rollout that ended before its task did."""
    return float(state.get("evaluated", 0.0))


class WebTasks(vf.MultiTurnEnv):
    """One browser and one store for all rollouts. They start with the first rollout."""

    def __init__(self, tasks: TextEnvironment, **options: Any) -> None:
        super().__init__(rubric=vf.Rubric(funcs=[evaluated]), **options)
        self._tasks = tasks

    async def setup_state(self, state: vf.State) -> vf.State:
        """Open the row's task; its first page is the prompt."""
        state["episode"] = self._tasks.open()
        shown = await played(lambda: state["episode"].reset(state["info"]["seed"]))
        state["prompt"] = [{"role": "user", "content": shown.text}]
        return state

    async def env_response(self, messages: vf.Messages, state: vf.State, **_: Any) -> vf.Messages:
        """Execute the answer and show the next page, or the evaluator's reason at the end."""
        answer = messages[-1]["content"] or ""
        shown = await played(lambda: state["episode"].step(answer))
        reply: vf.Messages = [{"role": "user", "content": shown.reason if shown.done else shown.text}]
        if shown.done:
            state["evaluated"], state["final_env_response"] = shown.reward, reply
        return reply

    @vf.cleanup
    async def close_episode(self, state: vf.State) -> None:
        """Release the browser's window."""
        await asyncio.to_thread(state.pop("episode").close)

    @vf.teardown
    async def close_tasks(self) -> None:
        """End the store and the browser. It is called at the end of the process, too, where no thread can start."""
        self._tasks.close()


async def played(play: Callable[[], Shown]) -> Shown:
    """Wait for the browser without blocking other rollouts. Raises the package's own error where the browser fails."""
    try:
        return await asyncio.to_thread(play)
    except HindcastError as error:
        raise vf.Error(str(error)) from error


def load_environment(
    environment: str = "store",
    families: Sequence[str] = (),
    tasks: int = 1000,
    held_out_tasks: int = 100,
    settings: Sequence[str] = (),
) -> vf.Environment:
    """The tasks of an environment; `families`: which are played, `settings`: changes as KEY=VALUE."""
    opened = TextEnvironment(environment, families=families, changes=settings)

    def rows(first: int, count: int) -> Dataset:
        seeds = range(first, first + count)
        return Dataset.from_list(
            [{"question": opened.task(one).name, "info": {"seed": one}} for one in seeds]
        )

    return WebTasks(opened, dataset=rows(0, tasks), eval_dataset=rows(HELD_OUT, held_out_tasks))
