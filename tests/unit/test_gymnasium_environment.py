"""Gymnasium environments: the example of docs/python.md, which is put into words, and one whose spaces are text."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.spaces import Text

from hindcast.actors.environments.python.plugin import PythonEnvironment
from hindcast.actors.environments.python.world import PythonWorld
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page
from hindcast.core.settings.schema import ActorSettings, Settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "python" / "frozen_lake.py"
LEFT, DOWN, RIGHT = 1, 2, 3


def example() -> Any:
    spec = importlib.util.spec_from_file_location("frozen_lake", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FrozenLake


def text_of(page: Page) -> str:
    return "\n".join(node.text for node in page.nodes if node.kind == "text")


async def played(*moves: int) -> tuple[list[str], dict[str, Any]]:
    make = example()
    source = PythonEnvironment(make).tasks("frozen_lake:FrozenLake", Settings())
    world = PythonWorld("frozen_lake:FrozenLake", make, ActorSettings())
    start = await world.reset(source.task("all", 3))
    assert start.instruction == "Reach G from S without falling into a hole H."
    shown = [text_of(start.observation.page)]
    for move in moves:
        outcome = await world.step(Action(name="Click", element=move))
        assert outcome.result == "ok"
        shown.append(text_of(outcome.observation.page))
    evidence = await world.finish(None)
    await world.close()
    return shown, evidence.probes


async def test_the_goal_is_reached() -> None:
    shown, probes = await played(DOWN, DOWN, RIGHT, RIGHT, DOWN, RIGHT)
    assert shown[0] == "*FFF\nFHFH\nFFFH\nHFFG"
    assert shown[1] == "SFFF\n*HFH\nFFFH\nHFFG"
    assert probes == {"reward": 1.0, "ended": True}


async def test_a_hole_ends_the_episode() -> None:
    _, probes = await played(DOWN, RIGHT)
    assert probes == {"reward": 0.0, "ended": True}


class Riddle(gymnasium.Env[str, str]):
    """Answer the question.

    Written for Gymnasium alone.
    """

    observation_space = Text(80)
    action_space = Text(80)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(10, 99))
        return f"What follows {self.number}?", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = action.strip() == str(self.number + 1)
        return "Right." if right else "Wrong.", float(right), right, False, {}


def documented_function() -> Any:
    """The function that docs/python.md shows."""
    page = Path(__file__).parents[2] / "docs" / "python.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "import gymnasium" in block)
    names: dict[str, Any] = {}
    exec(block, names)
    return names["riddle"]


async def test_an_environment_with_text_spaces_needs_only_a_function_that_makes_it() -> None:
    gymnasium.register("YourTexts-v0", entry_point=Riddle)
    riddle = documented_function()
    source = PythonEnvironment(riddle).tasks("riddles:riddle", Settings())
    numbers = []
    for _ in range(2):
        world = PythonWorld("riddles:riddle", riddle, ActorSettings())
        assert source.task("all", 3).max_steps == 20
        start = await world.reset(source.task("all", 3))
        assert start.instruction == "Answer the question."
        numbers.append(int(re.findall(r"\d+", text_of(start.observation.page))[0]))
        wrong = await world.step(Action(name="Type", element=1, argument="a goose"))
        right = await world.step(Action(name="Type", element=1, argument=str(numbers[-1] + 1)))
        assert (wrong.done, right.done, text_of(right.observation.page)) == (False, True, "Right.")
        assert (await world.finish(None)).probes == {"reward": 1.0, "ended": True}
        await world.close()
    assert numbers[0] == numbers[1]
