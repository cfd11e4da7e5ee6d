"""WebShop in a real browser: our own pages beside the store's, and a server of the original's pages by its URL."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
import pytest_asyncio

from hindcast.actors.environments.base import Demonstrate, EpisodeWorld
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.store.server import serve
from hindcast.actors.environments.webshop.demonstrators import buy_first, demonstrate
from hindcast.actors.environments.webshop.evaluators import evaluate
from hindcast.actors.environments.webshop.site import WebshopServerSite, WebshopSite, webshop_site
from hindcast.actors.environments.webshop.tasks import ServerTasks, WebshopTasks
from hindcast.actors.environments.webshop.world import WebshopText
from hindcast.actors.scaffold.files import site_states
from hindcast.actors.web_server import serve_app
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.settings.schema import SiteSettings
from servers.browser_site import PATIENT
from servers.webshop_server import original_app
from stories.store_visitor import TOKEN
from stories.webshop_files import written

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> SiteSettings:
    return written(tmp_path_factory.mktemp("webshop"), mode="pages")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(sites: SiteSettings) -> AsyncIterator[WebshopSite]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        serve(sites, host="127.0.0.1", port=0, control_token=TOKEN, ready=address.set_result)
    )
    found = webshop_site(sites, await address)
    assert isinstance(found, WebshopSite)
    yield found
    serving.cancel()
    await asyncio.wait([serving], timeout=60)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def original(sites: SiteSettings) -> AsyncIterator[WebshopServerSite]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        serve_app(
            original_app(WebshopTasks(sites).shop),
            server_name="the original",
            host="127.0.0.1",
            port=0,
            ready=address.set_result,
        )
    )
    yield WebshopServerSite(await address)
    serving.cancel()
    await asyncio.wait([serving], timeout=60)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(PATIENT) as browser:
        yield browser


async def play(
    world: EpisodeWorld, task: Task, agent: Demonstrate
) -> tuple[str, list[Observation], Evidence]:
    """The instruction, what was seen, and what is left of it."""
    try:
        start = await world.reset(task)
        seen, actions = [start.observation], list[Action]()
        for _ in range(task.max_steps):
            actions.append(agent(task, start.instruction, seen[-1], actions))
            outcome = await world.step(actions[-1])
            assert outcome.result == "ok", (actions[-1], outcome.detail)
            seen.append(outcome.observation)
            if outcome.done:
                break
        return start.instruction, seen, await world.finish(None)
    finally:
        await world.close()


def shown(page: Page) -> Sequence[tuple[object, ...]]:
    """What a page shows, by what policies read of it; a text cut in two in a browser is one again."""
    found: list[tuple[object, ...]] = []
    for node in page.nodes:
        kind = (node.kind, node.id, node.checked)
        if found and node.kind in ("text", "heading") and found[-1][1] == kind:
            found[-1] = (f"{found[-1][0]} {node.text}", kind)
        else:
            found.append((node.text, kind))
    return found


def with_options(sites: SiteSettings) -> Task:
    tasks = WebshopTasks(sites)
    made = (tasks.task("synthetic_train", seed) for seed in range(100))
    return next(task for task in made if len(task.goal["wanted"]["options"]) == 2)


async def test_pages_and_evidence_in_a_browser_are_those_of_the_text_mode(
    host: BrowserHost, site: WebshopSite, sites: SiteSettings
) -> None:
    task = with_options(sites)
    text = WebshopText(WebshopTasks(sites).shop)
    _, there, evidence = await play(await host.open_world(site), task, demonstrate)
    _, here, same = await play(await host.open_world(text), task, demonstrate)
    assert [shown(one.page) for one in there] == [shown(one.page) for one in here]
    assert [one.page.url.partition("/webshop/")[2] for one in there] == [
        one.page.url.partition("/webshop/")[2] for one in here
    ]
    assert evidence.probes == same.probes
    assert evaluate(task, evidence).reward == 1


async def test_every_family_is_won_in_a_browser(
    host: BrowserHost, site: WebshopSite, sites: SiteSettings
) -> None:
    tasks = WebshopTasks(sites)
    for family in tasks.families():
        task = tasks.task(family, 3)
        instruction, _, evidence = await play(await host.open_world(site), task, demonstrate)
        judgment = evaluate(task, evidence)
        assert (instruction, judgment.outcome) == (task.instruction, "success"), judgment.reason


async def test_only_what_was_bought_in_this_visit_counts(
    host: BrowserHost, site: WebshopSite, sites: SiteSettings
) -> None:
    task = with_options(sites)
    wanted = task.goal["wanted"]
    other = WebshopTasks(sites).task("test", 0).goal["wanted"]["digest"]
    for address, reason in (
        (f"/webshop/item_page/{wanted['digest']}/{wanted['asin']}", "nothing was bought"),
        (f"/webshop/done/{other}/{wanted['asin']}", "nothing was bought"),
        (f"/webshop/done/{wanted['digest']}/B999999999", "nothing was bought"),
        (
            f"/webshop/done/{wanted['digest']}/{wanted['asin']}?options=%7B%22color%22%3A%22x%22%7D",
            "nothing was bought",
        ),
        (f"/webshop/done/{wanted['digest']}/{wanted['asin']}", "options 0/2"),
    ):
        world = await host.open_world(site)
        try:
            await world.reset(task)
            await world.step(Action(name="Goto", argument=address))
            judgment = evaluate(task, await world.finish(None))
            assert judgment.outcome == "failure"
            assert reason in judgment.reason, address
        finally:
            await world.close()


async def test_a_task_of_other_data_is_refused(
    host: BrowserHost, site: WebshopSite, sites: SiteSettings
) -> None:
    task = with_options(sites)
    goal = task.goal | {"wanted": task.goal["wanted"] | {"instruction": "buy anything"}}
    world = await host.open_world(site)
    try:
        with pytest.raises(EnvironmentFailed, match="other data"):
            await world.reset(msgspec.structs.replace(task, goal=goal))
    finally:
        await world.close()


async def test_a_running_server_gives_instruction_and_score(
    host: BrowserHost, original: WebshopServerSite, sites: SiteSettings
) -> None:
    tasks = ServerTasks(SiteSettings(webshop_url="http://unused", webshop_url_goals=30))
    own = WebshopTasks(sites).shop.families["test"]
    states = site_states("laser", "webshop")
    assert states is not None
    rewards = []
    for seed in range(4):
        task = tasks.task("test", seed)
        instruction, seen, evidence = await play(await host.open_world(original), task, buy_first)
        assert instruction == own[seed].instruction
        recognised = [states.recognise(one.page) for one in seen[:-1]]
        assert [state.name for state in recognised if state is not None] == ["search", "result", "item"]
        judgment = evaluate(task, evidence)
        assert "score" in judgment.reason
        rewards.append(judgment.reward)
    assert all(0 < reward <= 1 for reward in rewards)
    world = await host.open_world(original)
    try:
        task = tasks.task("test", 0)
        await world.reset(task)
        judgment = evaluate(task, await world.finish(None))
        assert judgment.reason == "the server's last page shows no score"
    finally:
        await world.close()
