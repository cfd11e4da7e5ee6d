"""A plain Python class as an environment: what the agent sees, what reaches the class, and what its errors become."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hindcast.actors.environments.plugin import find_environment
from hindcast.actors.environments.python.plugin import PythonEnvironment, as_environment
from hindcast.actors.environments.python.world import PythonWorld
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed, PluginError
from hindcast.core.grammar.answer_parser import parse_form
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import ActorSettings, Settings
from stories.example_plugins import forget


class Doors:
    """Leave the room.

    This paragraph is not part of the instruction.
    """

    families = ("left", "right")
    max_steps = 4
    success = 2.0

    def reset(self, seed: int, family: str) -> str:
        self.thread = threading.get_ident()
        self.choices = ["left door", "right door"]
        self.right = f"{family} door"
        return f"Room {seed}.\n\n  Two doors."

    def step(self, action: str) -> tuple[str, float, bool]:
        assert threading.get_ident() == self.thread
        self.choices = []
        return "Say why.", float(action == self.right), action.startswith("because")


def world_of(make: Any, **settings: Any) -> PythonWorld:
    return PythonWorld("module:Doors", make, ActorSettings(**settings))


def task_of(make: Any, family: str = "right") -> Task:
    source = PythonEnvironment(make).tasks("module:Doors", Settings())
    assert source is not None
    return source.task(family, 3)


async def test_an_episode_shows_text_and_choices_and_adds_up_rewards() -> None:
    world = world_of(Doors)
    start = await world.reset(task_of(Doors))
    assert start.instruction == "Leave the room."
    assert RENDERERS["lines/2"](start.observation.page).splitlines() == [
        "page",
        "text Room 3.",
        "text Two doors.",
        "button left door [1]",
        "button right door [2]",
    ]
    wrong = await world.step(Action(name="Type", element=1, argument="x"))
    assert (wrong.result, wrong.done) == ("not_actionable", False)
    assert (await world.step(ParseFailure(reason="unreadable"))).result == "parse_failure"
    chosen = await world.step(Action(name="Click", element=2))
    assert chosen.result == "ok"
    assert [node.kind for node in chosen.observation.page.nodes] == ["text", "textarea"]
    assert (await world.step(Action(name="Click", element=2))).result == "not_actionable"
    done = await world.step(Action(name="Type", element=1, argument="because"))
    assert done.done
    evidence = await world.finish(None)
    assert evidence.probes == {"reward": 1.0, "ended": True}
    await world.close()


async def test_the_message_of_exit_reaches_the_class() -> None:
    world = world_of(Doors)
    await world.reset(task_of(Doors, "left"))
    await world.step(Action(name="Click", element=1))
    evidence = await world.finish("because it is open")
    assert evidence.probes == {"reward": 1.0, "ended": True}
    await world.close()


def test_the_sum_of_rewards_is_judged_by_the_class_s_own_bound() -> None:
    environment, task = PythonEnvironment(Doors), task_of(Doors)

    def judged(reward: object) -> tuple[str, float]:
        found = environment.evaluate(task, Evidence(answer=None, final_url="", probes={"reward": reward}), {})
        return found.outcome, found.reward

    assert judged(1.5) == ("failure", 1.0)
    assert judged(2.0) == ("success", 1.0)
    assert judged(-1.0) == ("failure", 0.0)
    assert judged(None) == ("undecided", 0.0)
    assert environment.families(Settings()) == ("left", "right")
    assert task.max_steps == 4


async def test_gymnasium_s_values_and_async_methods_are_accepted() -> None:
    class Gym:
        instruction = "Guess."

        async def reset(self, seed: int) -> tuple[str, dict[str, int]]:
            return f"seed {seed}", {}

        async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, int]]:
            return action, 0.25, False, action == "stop", {}

    world = world_of(Gym)
    start = await world.reset(task_of(Gym, "all"))
    assert start.instruction == "Guess."
    assert start.observation.page.nodes[0].text == "seed 3"
    assert not (await world.step(Action(name="Type", element=1, argument="go"))).done
    assert (await world.step(Action(name="Type", element=1, argument="stop"))).done
    assert (await world.finish(None)).probes["reward"] == 0.5
    await world.close()


async def test_errors_name_the_line_and_slow_code_its_limit() -> None:
    class Broken:
        def reset(self, seed: int) -> str:
            return ["a"][seed]

        def step(self, action: str) -> tuple[str, float, bool]:
            raise AssertionError

    class Slow(Doors):
        def step(self, action: str) -> tuple[str, float, bool]:
            time.sleep(0.5)
            return "", 0.0, True

    class Odd(Doors):
        def step(self, action: str) -> Any:
            return "only text"

    world = world_of(Broken)
    with pytest.raises(EnvironmentFailed, match=r"reset raised IndexError.*test_python_environment\.py:\d+"):
        await world.reset(task_of(Broken, "all"))
    await world.close()
    for make, words in (
        (Slow, r"longer than 0\.1 s \(actors\.action_timeout_s"),
        (Odd, "expected a text, a reward"),
    ):
        world = world_of(make, action_timeout_s=0.1)
        await world.reset(task_of(make))
        with pytest.raises(EnvironmentFailed, match=words):
            await world.step(Action(name="Click", element=1))
        await world.close()


async def test_episodes_at_once_do_not_share_an_object() -> None:
    worlds = [world_of(Doors) for _ in range(4)]
    await asyncio.gather(*(world.reset(task_of(Doors)) for world in worlds))
    await worlds[0].step(Action(name="Click", element=2))
    found = await asyncio.gather(*(world.finish(None) for world in worlds))
    assert [one.probes["reward"] for one in found] == [1.0, 0.0, 0.0, 0.0]
    for world in worlds:
        await world.close()


def test_an_object_that_is_no_environment_is_named() -> None:
    class Half:
        def reset(self, seed: int) -> str:
            return ""

    class NoFamilies(Doors):
        families = ()

    class NoSteps(Doors):
        max_steps = 0

    with pytest.raises(PluginError, match=r"Half has no step: an environment in Python has reset\(seed\)"):
        as_environment("module:Env", Half)
    with pytest.raises(PluginError, match=r"families is \(\)"):
        as_environment("module:Env", NoFamilies)
    with pytest.raises(PluginError, match="at least 1 step"):
        as_environment("module:Env", NoSteps)
    assert isinstance(as_environment("module:Env", lambda: Doors()), PythonEnvironment)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("right door\n", Action(name="Click", element=2)),
        ("Right  Door", ParseFailure(reason="expected one of left door, right door, found 'Right  Door'")),
    ],
)
def test_a_whole_answer_is_a_choice(answer: str, expected: object) -> None:
    from hindcast.actors.environments.python.world import page_of

    page = page_of("text:x", "Two doors.", ("left door", "right door"))
    assert parse_form(answer, "text", page) == expected


def test_a_whole_answer_is_typed_where_there_are_no_choices() -> None:
    from hindcast.actors.environments.python.world import page_of

    page = page_of("text:x", "Say something.", ())
    assert parse_form(' do(action="Wait") ', "text", page) == Action(
        name="Type", element=1, argument='do(action="Wait")'
    )
    assert isinstance(parse_form("  ", "text", page), ParseFailure)


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    yield tmp_path
    forget("rooms_of_a_test")


def test_a_module_of_the_working_folder_is_found(working_folder: Path) -> None:
    (working_folder / "rooms_of_a_test.py").write_text(
        "class Env:\n    def reset(self, seed): return ''\n    def step(self, action): return '', 0, True\n"
    )
    assert isinstance(find_environment("rooms_of_a_test:Env"), PythonEnvironment)
    assert os.environ["PYTHONPATH"] == str(working_folder), "workers run in another folder"
    with pytest.raises(PluginError, match="cannot be loaded"):
        find_environment("no_such_module_here:Env")
