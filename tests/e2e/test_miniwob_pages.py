"""MiniWoB++ in a real Chromium: the usual families can be solved, starts the same for the same seed, and judges as it
should."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.miniwob.families import USUAL
from hindcast.actors.environments.miniwob.site import MiniwobSite
from hindcast.actors.environments.miniwob.tasks import MiniwobTasks, evaluate
from hindcast.core.domain.action import Action
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import ActorSettings
from stories.miniwob_player import play_all

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]

SEEDS = (0, 1, 2, 5, 6, 1_000_003)

TASKS = MiniwobTasks()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(ActorSettings(page_timeout_s=60.0, action_timeout_s=30.0)) as host:
        yield host


@pytest.mark.parametrize("family", USUAL)
async def test_the_demonstrator_solves_the_family(host: BrowserHost, family: str) -> None:
    tasks = [TASKS.task(family, seed) for seed in SEEDS]
    for task, played in zip(tasks, await play_all(host, MiniwobSite(), tasks), strict=True):
        assert set(played.results) == {"ok"}, (task.seed, played.results)
        assert played.evidence.probes["raw_reward"] == 1, (task.seed, played.instruction)
        judgment = evaluate(task, played.evidence)
        assert (judgment.outcome, judgment.reward) == ("success", 1.0)


async def test_the_same_seed_gives_the_same_episode_on_a_fresh_and_on_a_used_page(host: BrowserHost) -> None:
    """No family here ignores its seed; one that did would show two digests."""
    tasks = [TASKS.task(family, 11) for family in USUAL]
    fresh, used = MiniwobSite(), MiniwobSite()
    fresh.traits = msgspec.structs.replace(fresh.traits, reusable=False)
    others = [TASKS.task(family, 12) for family in USUAL]
    first = await play_all(host, fresh, tasks)
    await play_all(host, used, others)
    again = await play_all(host, used, tasks)
    differing = [
        task.family for task, a, b in zip(tasks, first, again, strict=True) if a.digests != b.digests
    ]
    assert differing == []


async def test_different_seeds_give_different_problems(host: BrowserHost) -> None:
    fixed = {"click-test", "focus-text", "focus-text-2", "click-test-2", "click-button-sequence"}
    families = [family for family in USUAL if family not in fixed]
    one = await play_all(host, MiniwobSite(), [TASKS.task(family, 21) for family in families])
    two = await play_all(host, MiniwobSite(), [TASKS.task(family, 22) for family in families])
    same = [
        family
        for family, a, b in zip(families, one, two, strict=True)
        if (a.instruction, a.digests[0]) == (b.instruction, b.digests[0])
    ]
    assert same == []


async def test_a_wrong_choice_ends_the_episode_as_a_failure(host: BrowserHost) -> None:
    task = TASKS.task("click-test-2", 0)
    world = await host.open_world(MiniwobSite())
    try:
        start = await world.reset(task)
        assert start.instruction == "Click button ONE."
        wrong = next(node for node in start.observation.page.nodes if node.text == "TWO")
        outcome = await world.step(Action(name="Click", element=wrong.id))
        assert outcome.done
        evidence = await world.finish(None)
        assert evidence.probes["raw_reward"] == -1
        assert evaluate(task, evidence).outcome == "failure"
    finally:
        await world.close()


async def test_giving_up_leaves_the_page_unfinished_which_is_a_failure(host: BrowserHost) -> None:
    task = TASKS.task("enter-text", 0)
    world = await host.open_world(MiniwobSite())
    try:
        await world.reset(task)
        outcome = await world.step(Action(name="exit", argument="no"))
        assert (outcome.result, outcome.done) == ("exit", False)
        assert evaluate(task, await world.finish("no")).outcome == "failure"
    finally:
        await world.close()


async def test_pages_are_short_enough_for_a_small_model_and_hide_the_harness(host: BrowserHost) -> None:
    world = await host.open_world(MiniwobSite())
    try:
        for family in ("click-checkboxes", "search-engine", "multi-layouts"):
            start = await world.reset(TASKS.task(family, 3))
            text = RENDERERS["lines/1"](start.observation.page)
            assert len(text) < 600
            for word in ("Last reward", "Time left", "START", start.instruction):
                assert word not in text
            await world.close()
    finally:
        await world.close()
