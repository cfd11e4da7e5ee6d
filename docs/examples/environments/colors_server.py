"""A game of two turns as an OpenEnv server: choose a color from a list, then submit it.

    PYTHON colors_server.py 8000        # or without it: openenv:colors_server:app
    hindcast start --environment "openenv:http://localhost:8000 --observation page" \\
        --set actors.agent_python=PYTHON --until updates=20

PYTHON is the interpreter in which `openenv` is installed. Pages and answers have the form of Hindcast's shipped policy,
which chooses the color and seldom submits it.
"""

import re
import sys
from random import Random
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

COLORS = ("red", "green", "blue", "yellow", "black", "white", "pink", "brown")
CLICK = re.compile(r'Click", element="(\d+)"')
TURNS = 3


class Answer(Action):
    """What the policy answers."""

    message: str


class Page(Observation):
    """What the policy sees."""

    page: str


class Colors(Environment):
    """An episode: the reward is 1 for the wanted color, submitted."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Page:
        """Begin the game of a seed."""
        chance = Random(seed)
        colors = chance.sample(COLORS, 4)
        self.wanted, self.chosen, self.turn = chance.choice(colors), "", 0
        self.buttons = [*colors, "Submit"]
        return self.shown(f'Task Instruction: Click on the "{self.wanted}" button, then on Submit.\n\n')

    def step(self, action: Answer, timeout_s: float | None = None, **_: Any) -> Page:
        """Click a button; any other answer ends the game."""
        self.turn += 1
        found = CLICK.search(action.message)
        number = int(found[1]) if found is not None else 0
        clicked = self.buttons[number - 1] if 1 <= number <= len(self.buttons) else ""
        if clicked in COLORS and self.turn < TURNS:
            self.chosen = clicked
            return self.shown("")
        won = clicked == "Submit" and self.chosen == self.wanted
        return Page(page="", reward=float(won), done=True)

    @property
    def state(self) -> State:
        """Nothing that a client asks for."""
        return State()

    def shown(self, asked: str) -> Page:
        """The page of the turn, after what is asked."""
        buttons = (f"button {name} [{number}]" for number, name in enumerate(self.buttons, 1))
        text = f"Chosen: {self.chosen}" if self.chosen else "Colors"
        return Page(page=f"{asked}Round {self.turn}\n\n" + "\n".join(["page", f"text {text}", *buttons]))


app = create_fastapi_app(Colors, Answer, Page, max_concurrent_envs=64)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
