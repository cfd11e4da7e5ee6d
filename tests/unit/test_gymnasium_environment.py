"""The example of docs/python.md in which a real Gymnasium environment is text."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

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
