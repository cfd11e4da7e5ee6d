"""Pages that hang, storm, open, close and lead astray: every one is a result or a worded error within its bound."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import psutil
import pytest
import pytest_asyncio

from hindcast.actors.environments.browser import MEMORY_CHECK_EPISODES, BrowserHost
from hindcast.actors.environments.window import MAX_TABS, Window
from hindcast.core.errors import BrowserUnavailable, EnvironmentFailed
from servers.browser_site import PATIENT, SETTINGS, PageServer, PageSite, task_at, visiting

WAITS = 20
"""Seconds for what the browser does on its own, on a busy machine."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(SETTINGS) as host:
        yield host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[PageServer]:
    async with PageServer().running() as server:
        yield server


@pytest.fixture
def site(server: PageServer) -> PageSite:
    return PageSite(server)


@pytest.mark.parametrize("path", ["never", "loop.html"])
async def test_a_page_that_never_loads_fails_the_environment_within_its_bound(
    host: BrowserHost, site: PageSite, path: str
) -> None:
    began = time.monotonic()
    with pytest.raises(EnvironmentFailed, match="did not load") as failure:
        async with visiting(host, site, path):
            pass
    assert "4 s" in str(failure.value)
    assert time.monotonic() - began < SETTINGS.page_timeout_s * 2 + 8
    async with visiting(host, site, "start.html") as visit:
        assert visit.page.title == "Start", "the host serves the next episode"


async def test_a_site_that_is_not_running_fails_the_environment(
    host: BrowserHost, server: PageServer
) -> None:
    gone = PageServer()
    async with gone.running():
        pass
    with pytest.raises(EnvironmentFailed, match="ERR_CONNECTION_REFUSED"):
        async with visiting(host, PageSite(gone), "start.html"):
            pass


async def test_a_page_that_bends_the_script_fails_the_environment(host: BrowserHost, site: PageSite) -> None:
    with pytest.raises(EnvironmentFailed, match="snapshot"):
        async with visiting(host, site, "bent.html"):
            pass


async def test_dialogs_are_dismissed_as_they_come(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "storms.html") as visit:
        assert (await visit.do("Click", "Alerts")).result == "ok"
        assert (await visit.do("Click", "Questions")).result == "ok"
        assert await visit.seen() == ["done", "confirm false", "prompt null"]


async def test_leaving_a_page_cannot_be_prevented_by_it(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "storms.html") as visit:
        assert (await visit.do("Click", "Hold")).result == "ok"
        assert visit.page.title == "Second"


@pytest.mark.parametrize("name", ["Loop", "Loop soon", "Endless alerts"])
async def test_a_page_that_hangs_is_closed_and_the_episode_goes_on(
    host: BrowserHost, site: PageSite, name: str
) -> None:
    async with visiting(host, site, "storms.html") as visit:
        began = time.monotonic()
        outcome = await visit.do("Click", name)
        assert outcome.result == "page_closed"
        assert "was closed" in outcome.detail
        assert time.monotonic() - began < SETTINGS.action_timeout_s + SETTINGS.page_timeout_s + 8
        assert visit.page.url == "about:blank"
        assert (
            await visit.do("Goto", argument=f"{site.origins(task_at('second.html'))[0]}/second.html")
        ).result == "ok"
        assert visit.page.title == "Second"


async def test_a_navigation_that_never_answers_leaves_the_old_page_in_place(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "storms.html") as visit:
        outcome = await visit.do("Click", "Never")
        assert outcome.observe_ms < 1000 * (SETTINGS.page_timeout_s + 3)
        assert visit.page.title == "Storms"


async def test_a_page_whose_end_never_comes_is_shown_as_far_as_it_came(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "storms.html") as visit:
        await visit.do("Click", "Half")
        assert visit.shows("The first half")


async def test_a_link_that_answers_nothing_leaves_the_page_in_place(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "start.html") as visit:
        outcome = await visit.do("Click", "Nothing")
        assert (outcome.result, visit.page.title) == ("ok", "Start")
        assert outcome.observe_ms < 1000 * SETTINGS.page_timeout_s, "it was waited for to the end"


async def test_a_popup_becomes_the_active_tab_and_closing_itself_leads_back(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "start.html") as visit:
        outcome = await visit.do("Click", "In a tab")
        assert (outcome.result, visit.page.title) == ("ok", "Second")
        assert (outcome.observation.tabs, outcome.observation.active_tab) == (("Start", "Second"), 1)
        await visit.do("Click", "Close me")
        assert visit.page.title == "Start"


async def test_an_only_tab_that_closes_itself_is_replaced_by_an_empty_one(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "start.html") as visit:
        await visit.do("Click", "In a tab")
        await visit.do("Tab_focus", argument="0")
        await visit.do("Close_tab")
        outcome = await visit.do("Click", "Close me")
        assert (outcome.result, visit.page.url) == ("page_closed", "about:blank")


async def test_a_storm_of_windows_is_held_at_the_limit(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "storms.html") as visit:
        outcome = await visit.do("Click", "Windows")
        assert len(outcome.observation.tabs) <= MAX_TABS
        assert visit.page.title == "Second"
        for _ in range(WAITS):
            if len(outcome.observation.tabs) == MAX_TABS:
                break
            outcome = await visit.do("Wait")
        outcome = await visit.do("Wait")
        assert len(outcome.observation.tabs) == MAX_TABS
        assert (await visit.do("New_tab")).result == "not_actionable"


@pytest.mark.parametrize("link", ["Abroad", "Redirected abroad", "Abroad in a tab"])
async def test_a_link_out_of_the_allowed_origins_is_blocked(
    host: BrowserHost, site: PageSite, server: PageServer, link: str
) -> None:
    foreign = server.foreign.removeprefix("http://")
    async with visiting(host, site, "start.html") as visit:
        outcome = await visit.do("Click", link)
        assert outcome.result == "navigation_blocked"
        assert visit.page.title == "Start"
        assert len(outcome.observation.tabs) == 1
        assert not [request for request in server.requests if request.startswith(foreign)]


@pytest.mark.parametrize(
    "address",
    [
        "{foreign}/start.html",
        "file:///etc/passwd",
        "chrome://version",
        "data:text/html,x",
        "javascript:alert(1)",
    ],
)
async def test_an_address_out_of_the_allowed_origins_is_blocked(
    host: BrowserHost, site: PageSite, server: PageServer, address: str
) -> None:
    async with visiting(host, site, "start.html") as visit:
        for name in ("Goto", "New_tab"):
            outcome = await visit.do(name, argument=address.format(foreign=server.foreign))
            assert outcome.result in ("navigation_blocked", "not_actionable"), outcome
            assert visit.page.title == "Start"
            assert len(outcome.observation.tabs) == 1


@pytest.mark.parametrize("name", ["Data", "Disk"])
async def test_a_script_cannot_leave_the_allowed_origins_either(
    host: BrowserHost, site: PageSite, name: str
) -> None:
    async with visiting(host, site, "storms.html") as visit:
        await visit.do("Click", name)
        assert visit.page.title == "Storms"


async def test_a_script_cannot_fetch_from_elsewhere(
    host: BrowserHost, site: PageSite, server: PageServer
) -> None:
    async with visiting(host, site, "storms.html") as visit:
        await visit.do("Click", "Fetch")
        for _ in range(WAITS):
            await visit.do("Wait")
            if await visit.seen():
                break
        assert await visit.seen() == ["refused"]
        assert not [request for request in server.requests if request.endswith("/secret")]


@pytest.mark.parametrize("reusable", [False, True])
async def test_an_episode_leaves_nothing_for_the_next(
    host: BrowserHost, server: PageServer, reusable: bool
) -> None:
    site = PageSite(server, reusable=reusable)
    for _ in range(3):
        async with visiting(host, site, "cookies.html") as visit:
            assert visit.shows("found:")
            assert next(node.text for node in visit.page.nodes if "found" in node.text) == "found:"
            await visit.do("Goto", argument="/second.html")
            await visit.do("New_tab", argument="/cookies.html")
    assert site.left == 3
    async with visiting(host, site, "start.html") as visit:
        assert (await visit.do("Go_backward")).result == "not_actionable"


async def test_a_killed_browser_ends_its_episodes_and_is_replaced(server: PageServer) -> None:
    site = PageSite(server)
    async with BrowserHost(PATIENT) as host:
        async with visiting(host, site, "start.html") as visit:
            chromium = visit.world._entered().chromium
            for leader in chromium._leaders:
                if "chrom" in leader.name() or leader.name() == "sh":
                    os.killpg(leader.pid, signal.SIGKILL)
            with pytest.raises(BrowserUnavailable, match="ended in the middle"):
                await visit.do("Click", "Form")
        async with visiting(host, site, "start.html") as visit:
            assert visit.page.title == "Start"


async def test_a_page_whose_process_dies_is_replaced_by_an_empty_tab(server: PageServer) -> None:
    site = PageSite(server, reusable=True)
    async with BrowserHost(PATIENT) as host:
        async with visiting(host, site, "start.html") as visit:
            for leader in visit.world._entered().chromium._leaders:
                for process in leader.children(recursive=True):
                    with suppress(psutil.Error):  # some end by themselves meanwhile
                        if any("--type=renderer" in part for part in process.cmdline()):
                            process.kill()
            outcome = await visit.do("Click", "Form")
            assert (outcome.result, visit.page.url) == ("page_closed", "about:blank")
        async with visiting(host, site, "start.html") as visit:
            assert visit.page.title == "Start"


async def test_a_killed_driver_ends_its_episodes_and_is_replaced(server: PageServer) -> None:
    site = PageSite(server)
    async with BrowserHost(PATIENT) as host:
        async with visiting(host, site, "start.html") as visit:
            for leader in visit.world._entered().chromium._leaders:
                leader.kill()
            with pytest.raises(BrowserUnavailable, match="ended in the middle"):
                await visit.do("Click", "Form")
        async with visiting(host, site, "start.html") as visit:
            assert visit.page.title == "Start"


async def test_a_browser_that_hangs_is_killed_and_replaced(server: PageServer) -> None:
    site = PageSite(server)
    async with BrowserHost(SETTINGS) as host:
        async with visiting(host, site, "start.html") as visit:
            leaders = visit.world._entered().chromium._leaders
            for leader in leaders:
                if "chrom" in leader.name() or leader.name() == "sh":
                    os.killpg(leader.pid, signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(BrowserUnavailable):
                await visit.do("Click", "Form")
            assert time.monotonic() - began < 30
        await asyncio.to_thread(wait_until_gone, leaders)
        assert not any(map(runs, leaders))
        async with visiting(host, site, "start.html") as visit:
            assert visit.page.title == "Start"


async def test_a_browser_that_is_replaced_stays_until_the_window_that_it_was_opening_is_done(
    site: PageSite,
) -> None:
    async with BrowserHost(PATIENT.model_copy(update={"browser_episodes": 1})) as host:
        tasks = [task_at("start.html") for _ in range(4)]
        windows = await asyncio.gather(*(host.acquire(site, task) for task in tasks))
        assert len({window.chromium for window in windows}) == 4, "each opening one was replaced by the next"
        for window in windows:
            assert await window.tab.page.evaluate("1 + 1") == 2
            await host.release(window)


async def test_a_window_that_is_wiped_while_its_browser_is_replaced_serves_nobody_else(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, task = PageSite(server, reusable=True), task_at("start.html")
    wiping, go_on = asyncio.Event(), asyncio.Event()

    async def wipe(_window: Window) -> None:
        wiping.set()
        await go_on.wait()

    monkeypatch.setattr(Window, "wipe", wipe)
    async with BrowserHost(PATIENT.model_copy(update={"browser_episodes": 2})) as host:
        old = await host.acquire(site, task)
        old.chromium.episodes = 2
        releasing = asyncio.create_task(host.release(old))
        await wiping.wait()
        new = await host.acquire(site, task)
        assert new.chromium is not old.chromium
        assert old.chromium.alive, "it is not ended under a window that is wiped"
        go_on.set()
        await releasing
        assert not old.chromium.alive
        assert (await host.acquire(site, task)).chromium is new.chromium


async def test_browsers_are_replaced_by_age_while_their_episodes_go_on(server: PageServer) -> None:
    site = PageSite(server, reusable=True)
    async with BrowserHost(PATIENT.model_copy(update={"browser_episodes": 2})) as host:
        async with visiting(host, site, "start.html") as old:
            first = old.world._entered().chromium
            async with visiting(host, site, "start.html"):
                pass
            async with visiting(host, site, "start.html") as new:
                assert new.world._entered().chromium is not first
                assert (await old.do("Click", "Form")).result == "ok"
            assert first.alive
        assert not first.alive, "an old browser ends with its last episode"


async def test_a_window_waits_for_its_site_while_another_site_is_visited(server: PageServer) -> None:
    async with BrowserHost(PATIENT.model_copy(update={"contexts": 1})) as host:
        used = []
        for name in ("one", "other", "one", "other"):
            site = PageSite(server, reusable=True)
            site.name = name
            async with visiting(host, site, "start.html") as visit:
                used.append(visit.world._entered())
        assert used[0] is used[2]
        assert used[1] is used[3]
        assert used[0] is not used[1]


async def test_browsers_are_replaced_by_memory(server: PageServer) -> None:
    site = PageSite(server)
    async with BrowserHost(PATIENT.model_copy(update={"browser_memory_mib": 1})) as host:
        async with visiting(host, site, "start.html") as visit:
            first = visit.world._entered().chromium
        assert first.memory_mib() > 20
        first.episodes = MEMORY_CHECK_EPISODES - 1
        async with visiting(host, site, "start.html") as visit:
            assert visit.world._entered().chromium is not first


async def test_nothing_is_left_running_when_the_host_closes(server: PageServer) -> None:
    async with BrowserHost(PATIENT) as host:
        world = await host.open_world(PageSite(server))
        await world.reset(task_at("start.html"))
        leaders = world._entered().chromium._leaders
        assert len(leaders) == 2, "driver and browser lead their own process groups"
        assert all(os.getpgid(leader.pid) != os.getpgrp() for leader in leaders)
    await asyncio.to_thread(wait_until_gone, leaders)
    assert not any(map(runs, leaders))
    await world.close()


async def test_a_missing_browser_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrowserUnavailable, match="no executable file"):
        async with BrowserHost(SETTINGS.model_copy(update={"browser_path": "/nowhere/chromium"})):
            pass
    with pytest.raises(BrowserUnavailable, match="did not start") as failure:
        async with BrowserHost(SETTINGS.model_copy(update={"browser_path": "/bin/true"})):
            pass
    assert "/bin/true" in str(failure.value)
    monkeypatch.setattr("hindcast.actors.environments.chromium.COMMANDS", ())
    with pytest.raises(BrowserUnavailable, match="apt-get install chromium"):
        async with BrowserHost(SETTINGS):
            pass


def runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_until_gone(processes: list[psutil.Process], *, limit_s: float = 20) -> None:
    end = time.monotonic() + limit_s
    while any(map(runs, processes)) and time.monotonic() < end:
        time.sleep(0.05)


ORPHANS = """
import asyncio, sys, time
from hindcast.actors.environments.browser import BrowserHost
from hindcast.core.settings.schema import ActorSettings

async def main():
    async with BrowserHost(ActorSettings()) as host:
        chromium = await host._chromium()
        print(*(leader.pid for leader in chromium._leaders), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_driver_and_browser_end_with_a_process_that_is_killed() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHANS, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    line = b""
    while not line.replace(b" ", b"").strip().isdigit():
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line, "the process ended early"
    leaders = [psutil.Process(int(number)) for number in line.split()]
    assert len(leaders) == 2
    process.kill()
    await process.wait()
    await asyncio.to_thread(wait_until_gone, leaders)
    assert not any(map(runs, leaders))
