"""BrowserGym itself behind the bridge. Needs a Python that has it: BROWSERGYM_PYTHON names one.

One is made with: python -m venv DIR && DIR/bin/pip install browsergym-miniwob
"""

import os

import pytest

from hindcast.actors.environments.browsergym.child import DRIVER
from hindcast.actors.environments.browsergym.tasks import BrowsergymTasks, evaluate
from hindcast.actors.environments.browsergym.world import BrowsergymWorld
from hindcast.core.domain.action import Action
from stories.curriculum_story import settings_of

PYTHON = os.environ.get("BROWSERGYM_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="BROWSERGYM_PYTHON names no Python that has browsergym-miniwob"),
    pytest.mark.browser,
]


async def test_a_task_of_browsergym_is_won_through_our_actions() -> None:
    settings = settings_of(
        sites={"browsergym_python": PYTHON, "browsergym_tasks": ("browsergym/miniwob.enter-text",)}
    )
    task = BrowsergymTasks(settings.sites).task("miniwob.enter-text", 3)
    world = BrowsergymWorld(settings, driver=DRIVER)
    try:
        start = await world.reset(task)
        word = start.instruction.split('"')[1]
        nodes = {node.kind: node for node in start.observation.page.nodes}
        missed = await world.step(Action(name="Click", element=99))
        assert missed.result == "no_such_element"
        typed = await world.step(Action(name="Type", element=nodes["input"].id, argument=word))
        assert typed.result == "ok", typed.detail
        assert [node.value for node in typed.observation.page.nodes if node.kind == "input"] == [word]
        pressed = await world.step(Action(name="Click", element=nodes["button"].id))
        assert pressed.done
        evidence = await world.finish(None)
    finally:
        await world.close()
    assert evidence.probes == {"reward": 1.0, "ended": True, "infeasible": False}
    assert evaluate(task, evidence).outcome == "success"
