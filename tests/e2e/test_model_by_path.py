"""A vision-language model of a published family by its folder, from `hindcast start` to verified updates, on screenshots.

A random one can be trained, too: a scaffold of the test's own leaves clicks and waiting, so that a policy of random
weights wins about every other episode on two buttons: groups differ, and M-GRPO has something to learn from. What it
samples is constrained over a Qwen-like vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fakes.vision_model import write_vision_model
from hindcast.app.runs.runs import open_run
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.models.model_files import stop_tokens
from hindcast.core.models.policy import load_policy
from hindcast.core.models.vision import ImageProcessor
from hindcast.events.catalogue import RunStarted, StepTaken, UpdateApplied
from hindcast.events.envelope import Fact
from hindcast.events.log.reader import read
from processes.system import Home

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.broker,
    pytest.mark.torch,
    pytest.mark.browser,
]

STATES = """
environment = "miniwob"

[[state]]
name = "buttons"
path = ".*"
instruction = "Click on what the task names."
actions = [{ action = "Click" }, { action = "Wait" }]
"""
SETTINGS = {
    "curriculum.environments": '["miniwob"]',
    "curriculum.families": '["miniwob/click-test-2"]',
    "curriculum.group_size": "4",
    "curriculum.max_running": "8",
    "curriculum.task_pool": "4",
    "actors.max_answer_tokens": "120",
    "actors.contexts": "4",
    "actors.screenshot_observation": "newest",
    "actors.screenshot_width": "160",
    "scaffold.stages": "1",
    "learner.options.group_batch": "1",
    "learner.minibatches": "1",
    "learner.epochs": "1",
    "learner.options.rehearsal_episodes": "0",
}


async def _facts(home: Home, run: str) -> Sequence[Fact]:
    async with open_run(run, home=home.folder).connect_log() as log:
        return [recorded.fact async for recorded in read(log)]


async def test_a_random_vision_language_model_trains_on_screenshots_and_verifies_bit_exactly(
    tmp_path: Path,
) -> None:
    folder = write_vision_model(tmp_path / "model")
    states = tmp_path / "buttons.toml"
    states.write_text(STATES)
    home = Home(tmp_path / "home")
    wanted = {**SETTINGS, "policy.base": str(folder), "scaffold.states": str(states)}
    chosen = [part for key, value in wanted.items() for part in ("--set", f"{key}={value}")]
    goal = ("--run", "q", "--recipe", "mgrpo", "--until", "updates=1")
    assert home.json("start", *goal, *chosen, timeout_s=900)["updates"] >= 1
    report = home.json("verify", "q", timeout_s=600)
    assert report["identical"], report["first_divergence"]
    facts = await _facts(home, "q")
    (started,) = [fact for fact in facts if isinstance(fact, RunStarted)]
    policy = load_policy(folder)
    assert started.behaviour["framing"] == "chat/1"
    assert started.behaviour["template"].startswith("chatml@")
    opening = policy.tokenizer.encode(
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    )
    steps = [fact for fact in facts if isinstance(fact, StepTaken)]
    stops = stop_tokens(folder, policy.model.config, policy.tokenizer)
    assert all(unpack_ids(step.prompt_ids).tolist()[: len(opening)] == opening for step in steps)
    assert {step.action.name if step.action else "" for step in steps} <= {"Click", "Wait"}, "constrained"
    assert {int(unpack_ids(step.action_ids)[-1]) for step in steps} <= set(stops)
    assert sum(isinstance(fact, UpdateApplied) for fact in facts) >= 1
    start, pad, end = ImageProcessor(folder).marks
    shown = [step for step in steps if step.pictures]
    assert len(shown) > len(steps) / 2, "a picture that could not be had costs its step nothing else"
    for step in shown:
        (picture,) = step.pictures
        assert step.screenshot is not None
        assert (step.screenshot.image, step.screenshot.when) == (picture.blob, "before")
        ids = unpack_ids(step.prompt_ids).tolist()
        first = ids.index(start)
        assert ids[first : first + picture.tokens] == [start, *[pad] * (picture.tokens - 2), end]
    assert all(start not in unpack_ids(step.prompt_ids) for step in steps if not step.pictures)
    replayed = home.json("replay", "sampling", "q", "--episodes", "2", timeout_s=600)
    assert (replayed["beyond"], replayed["not_drawn"]) == (0, 0)
    assert replayed["answers"] > 0
