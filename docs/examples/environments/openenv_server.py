"""Hindcast's tasks as an OpenEnv server: `reset` with a seed shows the first page, each action is the policy's answer.

    .venv/bin/python openenv_server.py --environment store --family buy --port 8000

It runs in Hindcast's own environment, with the package `openenv` installed in addition.
"""

import argparse
from random import Random
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

from hindcast.api.text_environment import Shown, TextEnvironment

SEEDS = 1_000_000
"""Seeds below this one are for training; a reset without a seed draws one of them."""


class Answer(Action):
    """The policy's answer, such as `do(action="Click", element="3")`."""

    message: str


class Turn(Observation):
    """What the policy reads next."""

    text: str
    outcome: str = ""
    reason: str = ""


class HindcastTasks(Environment):
    """One session. The store and the browser are shared by all."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, tasks: TextEnvironment) -> None:
        super().__init__()
        self._episode = tasks.open()
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Turn:
        """Begin the task of a seed."""
        self._state = State(episode_id=episode_id, step_count=0)
        return turn_of(self._episode.reset(Random().randrange(SEEDS) if seed is None else seed))

    def step(self, action: Answer, timeout_s: float | None = None, **_: Any) -> Turn:
        """Execute the policy's answer."""
        self._state.step_count += 1
        return turn_of(self._episode.step(action.message))

    @property
    def state(self) -> State:
        """The client's name of the episode, and its steps."""
        return self._state

    def close(self) -> None:
        """Release the browser's window."""
        self._episode.close()


def turn_of(shown: Shown) -> Turn:
    """An episode's state as an observation."""
    return Turn(
        text=shown.text, done=shown.done, reward=shown.reward, outcome=shown.outcome, reason=shown.reason
    )


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", default="store", help="store, miniwob, or a Python class")
    parser.add_argument("--family", action="append", default=[], help="family that is played; repeatable")
    parser.add_argument("--set", action="append", default=[], help="a setting, as KEY=VALUE; repeatable")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--sessions", type=int, default=8, help="sessions at once")
    given = parser.parse_args()
    with TextEnvironment(given.environment, families=given.family, changes=given.set) as tasks:
        app = create_fastapi_app(
            lambda: HindcastTasks(tasks), Answer, Turn, max_concurrent_envs=given.sessions
        )
        uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
