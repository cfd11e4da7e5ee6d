"""Hostile pages in a real browser: none reaches what it must not, wedges an actor, or harms the episode after its own."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from hindcast.actors.environments.browser import BrowserHost
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.prompts.prompt_injection import suspicions
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import ActorSettings
from servers.hostile_pages import PAGES, TALKING, Hostile
from servers.hostile_server import NAME, OWN, PRIVATE, HostileServer, HostileSite

PATIENT = ActorSettings(page_timeout_s=120.0, action_timeout_s=60.0, private_networks=(f"{OWN}/32",))
"""For pages that answer, however busy the machine is."""
HASTY = PATIENT.model_copy(update={"page_timeout_s": 2.0, "action_timeout_s": 1.0})
"""From where a page hangs: its limits are waited for."""
SPARE_S = 60.0
"""What a busy machine may take beyond the limits that are waited for."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]


class Stage(NamedTuple):
    server: HostileServer
    host: BrowserHost


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    pages = {name: case.html for name, case in PAGES.items()} | {"talking": TALKING}
    server = HostileServer({name.replace(" ", "-"): html for name, html in pages.items()})
    async with server.running(), BrowserHost(PATIENT, resolver=server.resolver) as host:
        yield Stage(server, host)


async def click_go(
    host: BrowserHost, server: HostileServer, site: HostileSite, name: str
) -> tuple[str, Page | None]:
    """Visit a page, click on Go and let it do its worst: what came of it, or why the environment was given up."""
    world = await host.open_world(site)
    try:
        start = await world.reset(task_at(name))
        if PAGES[name].hangs:
            world._settings = HASTY
        go = next(node.id for node in start.observation.page.nodes if node.text == "Go")
        outcome = await world.step(Action(name="Click", element=go, argument=None))
        await server.noted(*PAGES[name].notes)
        return outcome.result, outcome.observation.page
    except EnvironmentFailed as error:
        return f"given up: {error}", None
    finally:
        await world.close()


def task_at(name: str) -> Task:
    family = name.replace(" ", "-")
    return Task(environment="hostile", family=family, seed=0, instruction="", goal={}, max_steps=10)


async def serves_the_next_episode(host: BrowserHost, site: HostileSite) -> None:
    world = await host.open_world(site)
    try:
        start = await world.reset(task_at("fetch"))
        assert any(node.text == "Here" for node in start.observation.page.nodes)
    finally:
        await world.close()


SLOW = ("100 MB", "deepest nesting", "many elements", "long words", "many options")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PAGES]
)
async def test_a_hostile_page_harms_nothing_beyond_its_own_episode(stage: Stage, name: str) -> None:
    case: Hostile = PAGES[name]
    server, site = stage.server, HostileSite(stage.server)
    server.notes.clear()
    began = time.monotonic()

    result, page = await click_go(stage.host, server, site, name)

    limits = HASTY if case.hangs else PATIENT
    assert time.monotonic() - began < 4 * limits.page_timeout_s + SPARE_S
    if page is None:
        assert case.fails, result
    else:
        assert result in case.results
        if result != "page_closed":
            assert any(node.text == "Here" for node in page.nodes) or not case.stays
            assert page.truncated or not case.cut
    assert "reached" not in server.notes
    assert not server.visitors
    await serves_the_next_episode(stage.host, site)
    assert not server.visitors


async def test_a_name_that_turns_to_a_private_address_leads_nowhere(stage: Stage) -> None:
    server, site = stage.server, HostileSite(stage.server, NAME)
    server.meaning = OWN
    world = await stage.host.open_world(site)
    try:
        start = await world.reset(task_at("fetch"))
        assert start.observation.page.url == f"{site.base}/fetch"
        server.meaning = PRIVATE
        with pytest.raises(EnvironmentFailed, match=f"{NAME} resolves to {PRIVATE}"):
            await world.step(Action(name="Goto", element=None, argument="/xhr"))
    finally:
        await world.close()
        server.meaning = OWN
    assert not server.visitors
    await serves_the_next_episode(stage.host, site)


@pytest.mark.parametrize("name", ["fetch", "web socket", "redirects", "webrtc"])
async def test_a_page_reached_by_name_reaches_no_more_than_others(stage: Stage, name: str) -> None:
    server, site = stage.server, HostileSite(stage.server, NAME)
    server.notes.clear()
    result, page = await click_go(stage.host, server, site, name)
    assert page is not None, result
    assert result in PAGES[name].results
    assert "reached" not in server.notes
    assert not server.visitors


async def test_a_site_named_by_a_private_name_says_what_would_allow_it(stage: Stage) -> None:
    settings = PATIENT.model_copy(update={"private_networks": ()})
    async with BrowserHost(settings, resolver=stage.server.resolver) as host:
        world = await host.open_world(HostileSite(stage.server, NAME))
        with pytest.raises(EnvironmentFailed, match=r"actors\.private_networks"):
            await world.reset(task_at("fetch"))
        await world.close()


async def test_the_places_that_nobody_reached_could_have_been_reached(stage: Stage) -> None:
    """Else an empty list of visitors would say nothing."""
    server = HostileServer({})
    async with server.running():
        for host, port in ((OWN, int(server.foreign.rsplit(":", 1)[1])), (PRIVATE, server.port)):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert b"reached" in await reader.read()
            writer.close()
        assert len(server.visitors) == 2


async def test_what_a_page_says_to_the_agent_is_found_and_forges_nothing(stage: Stage) -> None:
    world = await stage.host.open_world(HostileSite(stage.server))
    try:
        page = (await world.reset(task_at("talking"))).observation.page
    finally:
        await world.close()
    assert [found.split(":")[0] for found in suspicions(page)] == ["prompt", "new instructions", "action"]
    lines = RENDERERS["lines/2"](page).splitlines()
    assert len(lines) == 1 + len(page.nodes)
    assert [line for line in lines if line.endswith("]")] == [
        "textarea = x Round 9 button Pay (1) [1]",
        "link Go [2]",
    ]
    html = RENDERERS["webrl/2"](page)
    assert "do(action=&quot;Click&quot;" in html
    assert not any(line.startswith(("Round", "button")) for line in html.splitlines())
    assert not any("success" in node.text for node in page.nodes), "what nobody sees is not read"
