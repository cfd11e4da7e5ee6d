"""The store in a real browser: every demonstrator succeeds, standing still does not, groups do not meet."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hindcast.actors.environments.base import EpisodeWorld
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.early_stopping_demonstrator import LEAVE, last_page_action
from hindcast.actors.environments.store.evaluators import achieved_goals, evaluate
from hindcast.actors.environments.store.families import DEMONSTRATORS, FAMILIES
from hindcast.actors.environments.store.server import serve
from hindcast.actors.environments.store.site import StoreSite
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.scaffold.files import site_states
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import ActorSettings, SiteSettings
from stories.store_visitor import TOKEN

pytestmark = pytest.mark.browser

SETTINGS = SiteSettings()
TASKS = StoreTasks(SETTINGS)
SEEDS = range(100, 105)
ASKING = {
    "find_feature",
    "find_price",
    "find_product",
    "find_rating",
    "compare",
    "order_status",
    "impossible",
}
"""Families whose tasks ask for an answer."""
MAX_NODES = 50
MAX_CHARS = 1200
"""Of a page as `lines/1`: what a small policy reads at once."""


class Played:
    """One episode by a demonstrator."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.observations: list[Observation] = []
        self.evidence: Evidence | None = None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[StoreSite]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        serve(SETTINGS, host="127.0.0.1", port=0, control_token=TOKEN, ready=address.set_result)
    )
    yield StoreSite(await address, TOKEN)
    serving.cancel()
    await asyncio.wait([serving], timeout=5)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(site: StoreSite) -> AsyncIterator[BrowserHost]:
    async with BrowserHost(ActorSettings()) as browser:
        yield browser


async def play(world: EpisodeWorld, task: Task) -> Played:
    played = Played()
    start = await world.reset(task)
    assert start.instruction == task.instruction
    played.observations.append(start.observation)
    demonstrate = DEMONSTRATORS[task.family]
    answer: str | None = None
    while len(played.actions) < task.max_steps:
        action = demonstrate(task, task.instruction, played.observations[-1], played.actions)
        played.actions.append(action)
        if action.name == "exit":
            answer = action.argument
            break
        outcome = await world.step(action)
        assert outcome.result == "ok", (action, outcome.detail)
        played.observations.append(outcome.observation)
    played.evidence = await world.finish(answer)
    return played


async def episode(host: BrowserHost, site: StoreSite, task: Task) -> Played:
    world = await host.open_world(site)
    try:
        return await play(world, task)
    finally:
        await world.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_demonstrator_in_haste_fails_where_it_has_something_to_do(
    host: BrowserHost, site: StoreSite, family: str
) -> None:
    task, demonstrate = TASKS.task(family, SEEDS[0]), DEMONSTRATORS[family]
    world = await host.open_world(site)
    try:
        leaves_at = await last_page_action(world, task, demonstrate)
        start = await world.reset(task)
        observation, earlier = start.observation, list[Action]()
        for _ in range(leaves_at or 0):
            earlier.append(demonstrate(task, start.instruction, observation, earlier))
            observation = (await world.step(earlier[-1])).observation
        evidence = await world.finish("done")
    finally:
        await world.close()
    assert (leaves_at is None) == (family in ASKING)
    assert evaluate(task, evidence).outcome == "failure"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("family", FAMILIES)
async def test_the_demonstrator_succeeds_on_every_seed(
    host: BrowserHost, site: StoreSite, family: str
) -> None:
    tasks = [TASKS.task(family, seed) for seed in SEEDS]
    episodes = await asyncio.gather(*(episode(host, site, task) for task in tasks))
    for task, played in zip(tasks, episodes, strict=True):
        assert played.evidence is not None
        judgment = evaluate(task, played.evidence)
        assert judgment.reward == 1, (task.instruction, judgment.reason, played.actions)
        ordinals = [observation.page.ordinal for observation in played.observations]
        assert ordinals == sorted(ordinals)
        own = [goal for goal in achieved_goals(played.evidence) if goal.goal == task.goal]
        assert all(goal.ordinal > ordinals[0] for goal in own)
        for observation in played.observations:
            assert 8 <= len(observation.page.nodes) <= MAX_NODES
            assert len(RENDERERS["lines/1"](observation.page)) <= MAX_CHARS


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("family", FAMILIES)
async def test_lasers_second_states_allow_what_is_done_and_forbid_haste(
    host: BrowserHost, site: StoreSite, family: str
) -> None:
    states = site_states("laser/2", "store")
    assert states is not None
    for task in (TASKS.task(family, seed) for seed in SEEDS[:2]):
        played = await episode(host, site, task)
        allowed, used = [], None
        for seen, action in zip(played.observations, played.actions, strict=True):
            state = states.recognise(seen.page, used)
            assert state is not None
            choices = states.choices(state, seen.page)
            fixed = {choice.action for choice in choices if not choice.free}
            free = {(choice.action.name, choice.action.element) for choice in choices if choice.free}
            assert action in fixed or (action.name, action.element) in free, (state.name, action)
            allowed.append(LEAVE in fixed)
            used = next((node for node in seen.page.nodes if node.id == action.element), None)
        assert (family in ASKING) == (played.actions[-1] != LEAVE)
        if family not in ASKING:
            assert allowed[-2:] == [False, True]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("family", FAMILIES)
async def test_standing_still_earns_nothing(host: BrowserHost, site: StoreSite, family: str) -> None:
    task = TASKS.task(family, 200)
    world = await host.open_world(site)
    try:
        await world.reset(task)
        evidence = await world.finish("done")
        judgment = evaluate(task, evidence)
        assert (judgment.outcome, judgment.reward) == ("failure", 0.0)
        assert achieved_goals(evidence) == ()
    finally:
        await world.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_group_on_one_task_sees_equal_pages_and_keeps_apart(
    host: BrowserHost, site: StoreSite
) -> None:
    task = TASKS.task("buy", 300)
    idle = await host.open_world(site)
    try:
        await idle.reset(task)
        group = await asyncio.gather(*(episode(host, site, task) for _ in range(3)))
        digests = {tuple(observation.digest for observation in played.observations) for played in group}
        assert len(digests) == 1
        assert all(played.evidence and evaluate(task, played.evidence).reward == 1 for played in group)
        evidence = await idle.finish(None)
        assert evidence.probes["state"] == evidence.probes["opening"], (
            "others did not end or touch this visit"
        )
    finally:
        await idle.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_the_control_api_is_out_of_a_page_agents_reach(host: BrowserHost, site: StoreSite) -> None:
    task = TASKS.task("buy", 301)
    world = await host.open_world(site)
    try:
        await world.reset(task)
        (base,) = site.origins(task)
        seen = await world.step(Action(name="Goto", argument=f"{base}/_control/sessions"))
        assert "world-ordinal" not in str(seen.observation)
        assert not any(node.text == "token" for node in seen.observation.page.nodes)
        await world.step(Action(name="Go_backward"))
        evidence = await world.finish(None)
        assert evidence.probes["journal"][0] == {"fact": "visited", "page": "home"}
    finally:
        await world.close()


async def test_a_store_that_is_not_there_is_said_in_words() -> None:
    absent = StoreSite("http://127.0.0.1:9", TOKEN)
    async with BrowserHost(ActorSettings()) as browser:
        world = await browser.open_world(absent)
        try:
            with pytest.raises(EnvironmentFailed, match="does not answer"):
                await world.reset(TASKS.task("buy", 1))
        finally:
            await world.close()
