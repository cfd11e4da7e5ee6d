"""The page in a real browser, on a run whose log stands in a real broker and whose instructions are hostile."""

import asyncio
import json
import os
import re
import shutil
import stat
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page
from sqlalchemy import text as sql_text
from typer.testing import CliRunner

from hindcast.app.alerts.alert import Incident
from hindcast.app.alerts.incidents import Incidents
from hindcast.app.alerts.watcher import TARGET
from hindcast.app.attach.attachment import AttachmentStatus, consumers_folder, store_url
from hindcast.app.attach.store import ConsumerStore
from hindcast.app.cli import app
from hindcast.app.page.index_builds import IDLE, IndexBuild, IndexBuilds
from hindcast.app.page.runs import OpenRuns
from hindcast.app.page.views import log as log_view
from hindcast.app.page.views.home import RunRows
from hindcast.app.runs.explanations import (
    Explanation,
    MovingEpisode,
    MovingStep,
    TokenChange,
    VersionSuccess,
    list_explanations,
    save_explanation,
)
from hindcast.app.runs.folded_read_model import bring_up
from hindcast.app.runs.runs import RunHandle, open_run, run_folder
from hindcast.app.system.processes import write_json
from hindcast.core.domain.observation import Box, Node
from hindcast.core.domain.observation import Page as TextPage
from hindcast.core.ids import digest_hex
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    EvaluationFinished,
    RunForked,
    RunResumed,
    StepTaken,
    UpdateApplied,
    VerdictDisputed,
)
from hindcast.events.codec import decode
from hindcast.events.envelope import BlobRef
from hindcast.storage.readmodel.comparison import compare_runs
from hindcast.storage.readmodel.episode_queries import list_episodes
from hindcast.storage.readmodel.projector import run_projector
from hindcast.storage.readmodel.run_queries import run_status, run_summary
from stories.export_story import FIRST_PROMPT
from stories.recorded_home import make_home, tell
from stories.served_page import IMAGE, PICTURE, TOKEN, fold, launched, opened, served
from stories.synthetic_run import Told, a_run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.broker, pytest.mark.browser]

HOSTILE = '<script>window.pwned = 1</script><img src=x onerror="window.pwned = 1">{{ 7 * 7 }}'
PAGES = (
    "",
    "episodes",
    "timeline",
    "curriculum",
    "policies",
    "why",
    "compare",
    "log",
    "alerts",
    "consumers",
    "settings",
    "sql",
)
TEA = msgspec.msgpack.encode(
    TextPage(
        url="http://shop.test/", title=HOSTILE, nodes=(Node(kind="text", tag="p", text="Rooibos, 100 g"),)
    )
)
SHOWN_PAGE = BlobRef(digest_hex(TEA), len(TEA))
"""What every episode's second step shows."""
OTHER = "static"
"""A name that addresses of our own could hide."""


def hostile(told: Told) -> Told:
    """Instructions, answers and messages as an adversary would write them."""
    fact = told.fact
    if isinstance(fact, EpisodeStarted):
        return told._replace(fact=msgspec.structs.replace(fact, instruction=HOSTILE))
    if isinstance(fact, StepTaken):
        seen: dict[str, Any] = (
            {"screenshot": PICTURE, "touched": Box(20, 40, 100, 60), "prompt_ids": FIRST_PROMPT}
            if fact.index == 0
            else {}
        )
        if fact.index == 1:
            seen["observation"] = SHOWN_PAGE
        return told._replace(fact=msgspec.structs.replace(fact, answer=HOSTILE, url=HOSTILE, **seen))
    return told


FACTS = [hostile(told) for told in a_run(1, groups=8) if not isinstance(told.fact, RunForked)]
EARLIER = len(FACTS) - 40
STEP, EPISODE = next(
    (position, told.fact.episode)
    for position, told in enumerate(FACTS, 1)
    if isinstance(told.fact, StepTaken)
)
"""Position and episode of the first step."""
EXPLAINED = Explanation(
    run="run-1",
    question="store/find_price, policy 0 to 1",
    first_update=1,
    last_update=2,
    first_version=0,
    episodes=(
        MovingEpisode(
            episode=EPISODE,
            group="group",
            family=HOSTILE,
            origin="online",
            reward=None,
            rehearsed=False,
            advantage=-1.0,
            share=1.0,
            pull=-0.031,
            steps=tuple(
                MovingStep(position=STEP, step=step, answer=HOSTILE, share=0.5, pull=-0.031 * step)
                for step in (0, 1)
            ),
        ),
    ),
    tokens=(
        TokenChange(
            episode=EPISODE,
            position=STEP,
            step=0,
            context=HOSTILE,
            token=HOSTILE,
            before=0.9,
            after=0.4,
            others=1,
        ),
    ),
    family="store/find_price",
    probe_origin="training",
    probe_episodes=4,
    success=(VersionSuccess(version=0, episodes=4, successes=2),),
    recomputed=2,
)


class _Unmoved(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        return None


_opener = urllib.request.build_opener(_Unmoved)


def fold_report(home: Path) -> Any:
    """Rebuild the read model of the home's newest run next to it, and compare."""
    done = CliRunner().invoke(app, ["rebuild", "--json"], env={"HINDCAST_HOME": str(home)})
    return json.loads(done.output)


class Shown:
    """A page that is served, and its run."""

    def __init__(self, handle: RunHandle, base: str) -> None:
        self.handle = handle
        self.base = f"{base}/{handle.name}"
        self.port = int(base.rpartition(":")[2])

    def fetch(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        return self.ask(path, Authorization=f"Bearer {TOKEN}", **headers)

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        """As a visitor who has not shown the token; no redirect is followed."""
        request = urllib.request.Request(
            self.base + path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        try:
            with _opener.open(request, timeout=60) as answer:
                return (
                    answer.status,
                    {k.lower(): v for k, v in answer.headers.items()},
                    answer.read().decode(),
                )
        except urllib.error.HTTPError as error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read().decode()

    def fetch_root(self, path: str) -> tuple[int, dict[str, str], str]:
        """An address of the server rather than of the run."""
        with urllib.request.urlopen(
            urllib.request.Request(
                f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
            ),
            timeout=60,
        ) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()

    async def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        return await asyncio.to_thread(self.fetch, path, **headers)

    async def twin(self, path: str) -> Any:
        status, _, text = await self.get(path)
        assert status == 200, text
        return json.loads(text)


def plain(value: object) -> Any:
    """As it arrives in JSON."""
    return json.loads(msgspec.json.encode(value))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    home = tmp_path_factory.mktemp("page") / "home"
    other = [told for told in a_run(2, groups=4, run=OTHER) if not isinstance(told.fact, RunForked)]
    await make_home(home, other, run=OTHER)
    await asyncio.to_thread(fold, home)
    handle = await make_home(home, FACTS[:EARLIER])
    handle.blobs.put(IMAGE)
    handle.blobs.put(TEA)
    await asyncio.to_thread(fold, home)
    save_explanation(run_folder(home, handle.name), EXPLAINED)
    async with served(home) as base:
        yield Shown(handle, base)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, shown: Shown) -> AsyncIterator[Page]:
    async with opened(browser, f"http://127.0.0.1:{shown.port}") as tab:
        yield tab


async def test_an_explanation_shows_the_steps_with_their_pages(shown: Shown, page: Page) -> None:
    await page.goto(f"{shown.base}/why")
    assert await page.locator("h2", has_text="store/find_price, policy 0 to 1").count() == 1
    moving = page.locator(".moving li")
    assert await moving.count() == 2
    assert "-3.10 points" in await moving.nth(0).inner_text(), "the largest part first"
    assert await moving.nth(1).locator("image").count() == 1, "a picture was taken of step 0"
    await moving.nth(0).locator("summary").click()
    await moving.nth(0).locator(".piece pre").first.wait_for(state="attached")
    assert (await shown.get("/why?of=no-such"))[0] == 404


async def test_a_query_is_answered_on_the_page_and_a_refused_one_says_why(shown: Shown, page: Page) -> None:
    await page.goto(f"{shown.base}/sql")
    await page.fill("#query", "SELECT episode, state FROM episodes_current ORDER BY episode LIMIT 2")
    await page.click("text=Ask")
    assert await page.locator("tbody a.id").count() == 2
    await page.fill("#query", "DROP TABLE episodes")
    await page.click("text=Ask")
    assert "begins with SELECT" in await page.inner_text(".health")


async def test_a_facet_is_a_filter_that_keeps_the_others_and_counts_what_it_leaves(
    shown: Shown, page: Page
) -> None:
    at = EARLIER - 20
    await page.goto(f"{shown.base}/episodes?origin=online&as_of={at}")
    link = page.locator(".facets a", has_text="success")
    count = int(await link.locator("b").inner_text())
    await link.click()
    assert {*urlsplit(page.url).query.split("&")} == {"origin=online", f"as_of={at}", "outcome=success"}
    assert count == await page.locator("table.rows tbody tr").count() > 0
    assert await page.locator(".facets a[aria-current]").count() == 2
    await page.locator(".facets a[aria-current]", has_text="success").click()
    assert "outcome" not in page.url


async def heads(page: Page) -> list[str]:
    """Columns of the list of episodes."""
    return await page.locator("table[data-steady] thead th").all_inner_texts()


async def test_columns_are_chosen_by_keyboard_and_kept_in_the_address_and_its_links(
    shown: Shown, page: Page
) -> None:
    at = EARLIER - 20
    await page.goto(f"{shown.base}/episodes?origin=online&as_of={at}")
    usual = await heads(page)
    assert usual[:3] == ["episode", "verdict", "reward"]
    await page.locator(".choose summary").focus()
    await page.keyboard.press("Enter")
    for name in ("reward", "task", "discarded"):
        await page.get_by_label(name, exact=True).focus()
        await page.keyboard.press("Space")
    await asyncio.sleep(0.7)  # a filter would have been applied by now
    await page.get_by_role("button", name="Show these").press("Enter")
    await page.wait_for_url("**columns=**")
    chosen = [name for name in usual if name not in ("reward", "task")] + ["discarded"]
    assert await heads(page) == chosen
    assert {"origin=online", f"as_of={at}"} < {*urlsplit(page.url).query.split("&")}
    await page.locator(".facets a", has_text="success").click()
    await page.wait_for_url("**outcome=success**")
    assert await heads(page) == chosen
    assert await page.locator("input[name=columns][value=discarded]:not([type=hidden])").is_checked()
    rows = page.locator("table[data-steady] tbody tr")
    assert {await row.locator("td").count() for row in await rows.all()} == {len(chosen)}
    await page.goto(page.url.replace("&columns", "&before=1000000&columns"))
    assert await heads(page) == chosen
    await page.locator(".choose summary").click()
    await page.get_by_role("link", name="the usual ones").click()
    await page.wait_for_url(lambda address: "columns" not in address)
    assert await heads(page) == usual
    status, _, text = await shown.get("/episodes?columns=rewards")
    assert status == 400
    assert "no column" in text
    assert "reward" in text


async def test_columns_are_chosen_without_the_script(shown: Shown, browser: Browser) -> None:
    context = await browser.new_context(
        java_script_enabled=False, extra_http_headers={"Authorization": f"Bearer {TOKEN}"}
    )
    tab = await context.new_page()
    await tab.goto(f"{shown.base}/episodes?outcome=failure")
    await tab.locator(".choose summary").click()
    for name in ("task", "group"):
        await tab.get_by_label(name, exact=True).uncheck()
    await tab.get_by_label("attempt", exact=True).check()
    await tab.get_by_role("button", name="Show these").click()
    assert "outcome=failure" in tab.url
    shown_now = await heads(tab)
    assert "attempt" in shown_now
    assert not {"task", "group"} & {*shown_now}
    await tab.locator("input[name=text]").fill("a")
    await tab.locator("input[name=text]").press("Enter")
    assert await heads(tab) == shown_now
    await context.close()


async def test_a_wide_table_is_a_list_on_a_phone_and_a_table_on_a_wide_screen(
    shown: Shown, page: Page
) -> None:
    cut = """all => all.filter(one => one.scrollWidth > one.clientWidth && one.querySelector(':scope > table')).length"""
    for path in ("episodes", "curriculum", "policies", "alerts", "why", f"compare?with={OTHER}"):
        await page.set_viewport_size({"width": 1440, "height": 900})
        await page.goto(f"{shown.base}/{path}")
        assert await page.locator("table.stacked").count() == 0, path
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.reload()
        assert await page.eval_on_selector_all("main .scroll", cut) == 0, path
    await page.goto(f"{shown.base}/episodes")
    assert await page.locator("table.stacked td[data-label=verdict]").count() > 0
    assert await serious(page) == []


async def test_a_browser_keeps_style_sheet_and_scripts_of_this_version(shown: Shown, page: Page) -> None:
    await page.goto(f"{shown.base}/")
    files = await page.eval_on_selector_all(
        "link[href], script[src]",
        "all => all.map(one => one.getAttribute('href') ?? one.getAttribute('src'))",
    )
    assert len(files) == 5
    for file in files:
        status, headers, content = await asyncio.to_thread(shown.fetch_root, file)
        assert (status, headers["cache-control"]) == (200, "private, max-age=31536000, immutable")
        assert f"v={digest_hex(content.encode())[:12]}" in file
        _, headers, _ = await asyncio.to_thread(shown.fetch_root, file.partition("?")[0])
        assert headers["cache-control"] == "no-store", "it may become another one"
    await page.goto(f"{shown.base}/policies")
    sizes = "performance.getEntriesByType('resource').map(one => one.transferSize)"
    assert await page.evaluate(sizes) == [0, 0], "the second page loads none of them again"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await asyncio.to_thread(shown.fetch_root, "/_static/nothing.js")


async def test_the_timeline_shows_how_many_episodes_wait_and_for_whom(shown: Shown, page: Page) -> None:
    timeline = await shown.twin("/timeline.json?seconds=3600")
    queues = {one["name"]: one for one in timeline["queues"]}
    judged = {event.fact.episode for event in FACTS[:EARLIER] if isinstance(event.fact, EpisodeJudged)}
    ended = {event.fact.episode for event in FACTS[:EARLIER] if isinstance(event.fact, EpisodeEnded)}
    assert queues["to judge"]["last"] == len(ended - judged)
    await page.goto(f"{shown.base}/timeline?seconds=3600")
    for queue in queues.values():
        assert await page.locator("svg.lanes text", has_text=f"most {queue['most']}").count() >= 1
        titles = page.locator("rect.queue title", has_text=f"waiting for {queue['waits_for']}")
        assert await titles.count() == len(queue["columns"]) > 0
    assert "Episodes that wait, on average" in await page.locator(".health").inner_text()


async def test_the_curriculum_shows_the_success_of_each_family_over_the_versions(
    shown: Shown, page: Page
) -> None:
    await page.goto(f"{shown.base}/curriculum")
    for family, points in (await shown.twin("/curriculum.json"))["families"].items():
        row = page.locator("#families tbody tr", has=page.get_by_role("link", name=family, exact=True))
        assert f"n={points[-1]['judged']}" in await row.inner_text()
        why = await shown.twin(f"/why.json?{urlencode({'family': family})}")
        assert [point["judged"] for point in why["change"]["curve"]] == [point["judged"] for point in points]
    await row.get_by_role("link", name=family, exact=True).click()
    assert await page.locator("#families tbody tr").count() == 1
    assert {family} == set(await page.locator("table.rows").last.locator("td:nth-child(2)").all_inner_texts())
    await page.click("#families >> text=why?")
    assert (await page.locator("#family h2").inner_text()).startswith(family)


async def test_tasks_without_an_episode_are_folded_below_those_that_were_played(
    shown: Shown, page: Page
) -> None:
    tasks = (await shown.twin("/curriculum.json"))["tasks"]
    unplayed = {task["task"] for task in tasks if not task["episodes"]}
    assert 0 < len(unplayed) < len(tasks)
    await page.goto(f"{shown.base}/curriculum")
    folded = page.locator("details", has_text=f"{len(unplayed)} tasks without an episode")
    assert not await folded.locator("table").is_visible()
    await folded.locator("summary").click()
    assert {*await folded.locator("td:first-child").all_inner_texts()} == unplayed


async def test_lanes_keep_their_names_on_a_phone_that_scrolls_the_timeline(shown: Shown, page: Page) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(f"{shown.base}/timeline")
    for name in ("learner", "to train"):
        box = await page.locator(".lane-names text", has_text=name).bounding_box()
        assert box is not None, name
        assert 0 <= box["x"] < 100, name
    assert await page.evaluate("document.querySelector('.newest').scrollWidth > 390")
    await page.set_viewport_size({"width": 1400, "height": 900})
    assert not await page.locator(".lane-names").is_visible()


async def test_a_phone_shows_the_thing_in_the_middle_of_its_lineage(shown: Shown, page: Page) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(f"{shown.base}/lineage/update/1")
    box = await page.locator(".graph .thing rect").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


async def test_a_long_list_on_a_phone_has_its_first_rows_and_a_button_for_the_others(
    shown: Shown, page: Page
) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    for path in ("episodes", "log"):
        await page.goto(f"{shown.base}/{path}")
        rows = page.locator("table.rows").last.locator("tbody tr")
        visible = "all => all.filter(one => one.checkVisibility()).length"
        count = await rows.count()
        assert count > await rows.evaluate_all(visible) == 10, path
        assert await serious(page) == []
        button = page.get_by_role("button", name=f"{count - 10} more rows")
        await button.press("Enter")
        assert await rows.evaluate_all(visible) == count, path
        assert await button.count() == 0
        assert await rows.nth(10).evaluate("row => row.contains(document.activeElement)"), "reading continues"
        await page.emulate_media(media="print")
        assert await rows.evaluate_all(visible) == count, path
        await page.emulate_media(media="screen")
    await page.goto(f"{shown.base}/log")
    hidden = await page.locator("tr[id]").nth(20).get_attribute("id")
    await page.goto(f"{shown.base}/log#{hidden}")
    await page.reload()
    assert await page.locator(f"#{hidden}").is_visible(), "a link into the list shows its row"
    await page.set_viewport_size({"width": 1440, "height": 900})
    await page.goto(f"{shown.base}/episodes")
    assert await page.locator(".unfold").count() == 0


async def test_every_page_opens_without_an_error_and_its_twin_has_the_same_position(
    shown: Shown, page: Page
) -> None:
    for path in (
        *PAGES,
        f"episodes/{EPISODE}",
        f"episodes/{EPISODE}/pair",
        f"lineage/episode/{EPISODE}",
        "lineage/update/1",
    ):
        answer = await page.goto(f"{shown.base}/{path}")
        assert answer is not None
        assert answer.status == 200, path
        assert await page.locator("main h1").count() == 1, path
        twin = await shown.twin(f"/{path or 'overview'}.json")
        assert twin["position"] == EARLIER
        assert f"as of position {EARLIER}" in await page.locator("footer").inner_text()


async def serious(page: Page) -> list[str]:
    """What axe-core finds that keeps people out."""
    found = await Axe().run(page)
    return [
        f"{page.url} {one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary'][:300]}"
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


async def test_nobody_is_kept_out_of_any_page(shown: Shown, page: Page) -> None:
    """By eyes, hands or the colours of their screen: axe-core finds nothing serious, in the light and in the dark."""
    for path in (
        *PAGES,
        f"compare?with={OTHER}",
        f"episodes/{EPISODE}",
        f"episodes/{EPISODE}/pair?shade=advantage",
        f"lineage/episode/{EPISODE}",
        "lineage/update/1",
    ):
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.goto(f"{shown.base}/{path}")
            if path == f"episodes/{EPISODE}":
                await page.keyboard.press("j")
                await page.keyboard.press("o")
                await page.wait_for_selector(".step.here .piece .tokens")
                await page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
            assert await serious(page) == [], scheme


async def test_a_phone_shows_every_page_without_scrolling_aside_and_charts_with_readable_labels(
    shown: Shown, page: Page
) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    for path in (
        *PAGES,
        f"compare?with={OTHER}",
        f"episodes/{EPISODE}",
        f"episodes/{EPISODE}/pair",
        f"lineage/episode/{EPISODE}",
        "lineage/update/1",
    ):
        await page.goto(f"{shown.base}/{path}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390, path
        # what the script draws over it has the size of its font; without it, and in print, the server's picture is seen
        await page.emulate_media(media="print")
        sizes = await page.eval_on_selector_all(
            ".chart text",
            "all => all.map(one => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a)",
        )
        assert min(sizes, default=10) >= 10, path
        assert sizes or path not in ("", "timeline", f"compare?with={OTHER}")
        await page.emulate_media(media="screen")


async def test_the_log_is_read_backwards_by_kind_role_and_range_and_leads_to_what_it_names(
    shown: Shown, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def positions(kind: type[Any]) -> list[int]:
        return [at for at, told in enumerate(FACTS[:EARLIER], 1) if isinstance(told.fact, kind)][::-1]

    newest = (await shown.twin("/log.json"))["events"]
    assert [one["position"] for one in newest] == list(range(EARLIER, EARLIER - 50, -1))
    updates = (await shown.twin("/log.json?kind=update.applied"))["events"]
    assert [one["position"] for one in updates] == positions(UpdateApplied)
    actors = (await shown.twin("/log.json?kind=step.*&role=actor&from=20&to=60"))["events"]
    assert [one["position"] for one in actors] == [at for at in positions(StepTaken) if 20 <= at <= 60]
    assert (await shown.twin("/log.json?kind=step.*&role=learner"))["events"] == []
    (one,) = (await shown.twin(f"/log.json?from={STEP}&to={STEP}"))["events"]
    assert one["event"]["payload"]["answer"] == HOSTILE
    assert {"/episodes/" + EPISODE, f"/lineage/episode/{EPISODE}", f"/lineage/step/{STEP}"} <= {
        link["path"] for link in one["links"]
    }
    earlier = await shown.twin("/log.json?as_of=30")
    assert earlier["events"][0]["position"] == 30
    status, _, text = await shown.get("/log.json?kind=no.such")
    assert (status, json.loads(text)["error"]) == (400, "SettingsError")
    monkeypatch.setattr(log_view, "MOST_READ", 40)
    part = await shown.twin("/log.json?kind=run.started")
    assert (part["events"], part["first"], part["older"]) == ([], EARLIER - 39, EARLIER - 40)
    monkeypatch.undo()
    await page.goto(f"{shown.base}/log?kind=step.taken")
    seen = []
    while True:
        seen += await page.locator("table.log tbody tr").evaluate_all("all => all.map(one => one.id)")
        if not await page.locator("a[rel=next]").count():
            break
        await page.locator("a[rel=next]").click()
    assert seen == [f"at-{at}" for at in positions(StepTaken)]
    assert len(seen) > 50
    await page.locator("details.event summary").first.click()
    assert "prompt_ids" in await page.locator("details.event pre").first.inner_text()
    assert await serious(page) == []
    await page.goto(f"{shown.base}/log?from=30&to=20")
    assert "matches" in await page.inner_text(".empty")


async def test_alerts_say_that_nobody_watched_or_what_is_raised_and_what_to_do(
    shown: Shown, page: Page
) -> None:
    await page.goto(f"{shown.base}/alerts")
    assert f"hindcast alerts {shown.handle.name}" in await page.inner_text(".empty")
    store = ConsumerStore(store_url(shown.handle, "alerts"))
    incidents = Incidents(store, shown.handle.name)
    await asyncio.to_thread(incidents.prepare)
    began = {"id": f"success.{STEP}", "kind": "success", "position": STEP, "text": HOSTILE}
    incidents.note(
        [Incident(**began), Incident(id="lag.x.9", kind="lag", position=9, text="slow", over="fast")]
    )
    status = AttachmentStatus(
        name="alerts", target=TARGET, store=store_url(shown.handle, "alerts"), host="", pid=0, state="stopped"
    )
    write_json(consumers_folder(shown.handle.folder) / "alerts.json", msgspec.to_builtins(status))
    store.close()
    await page.goto(f"{shown.base}/alerts")
    raised = page.locator(".alerts li")
    assert await raised.count() == 1
    assert HOSTILE in await raised.inner_text()
    assert "What to do" in await raised.inner_text()
    await raised.locator("a").click()
    assert await page.locator("table.log tbody tr").first.get_attribute("id") == f"at-{STEP}"
    then = await shown.twin("/alerts.json?as_of=9")
    assert [(one["incident"]["kind"], one["end_unknown"]) for one in then["alerts"]["raised"]] == [
        ("lag", True)
    ]
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.goto(f"{shown.base}/alerts")
        assert await serious(page) == []


async def test_a_run_may_have_any_name(shown: Shown) -> None:
    status, _, text = await asyncio.to_thread(
        Shown(open_run(OTHER, home=shown.handle.home), shown.base.rpartition("/")[0]).fetch, "/"
    )
    assert status == 200
    assert f"<title>Overview · {OTHER}" in text


async def test_every_link_leads_somewhere(shown: Shown, page: Page) -> None:
    seen: set[str] = set()
    for path in (*PAGES, f"episodes/{EPISODE}", f"episodes/{EPISODE}/pair"):
        await page.goto(f"{shown.base}/{path}")
        links = await page.eval_on_selector_all(
            "a[href]", "all => all.map(one => one.href.baseVal ?? one.href)"
        )
        seen |= {link.split("#")[0] for link in links}
    inside = sorted(link for link in seen if link.startswith((shown.base, f"/{shown.handle.name}/")))
    assert len(inside) > 30
    paths = [link[link.index(f"/{shown.handle.name}/") + len(shown.handle.name) + 1 :] for link in inside]
    # one of each kind: the page, and which choices its address carries
    kinds = {
        (path.split("/")[1].split("?")[0], tuple(sorted(parse_qs(urlsplit(path).query)))): path
        for path in paths
    }
    assert len(kinds) > 8
    for path in kinds.values():
        status, _, text = await shown.get(path)
        assert status == 200, (path, text[-300:])


async def test_the_pages_numbers_are_the_databases(shown: Shown, page: Page) -> None:
    model = shown.handle.read_model()
    with model.reading() as connection:
        summary, status = run_summary(connection), run_status(connection)
        some = list_episodes(connection, outcome="success", limit=50)
    model.close()
    told = await shown.twin("/overview.json")
    assert told["summary"] == plain(status)
    metrics: dict[str, list[float]] = {}
    for told_fact in FACTS[:EARLIER]:
        if isinstance(told_fact.fact, UpdateApplied) and told_fact.fact.model == "policy":
            for name, value in told_fact.fact.metrics.items():
                if isfinite(value):
                    metrics.setdefault(name, []).append(value)
    online = [point for point in summary.success if point.origin == "online" and point.success.judged]
    assert [(p["first"], p["successes"], p["judged"]) for p in told["curve"]] == [
        (p.version, p.success.successes, p.success.judged) for p in sorted(online, key=lambda p: p.version)
    ]
    await page.goto(f"{shown.base}/")
    assert [(one["name"], one["updates"], one["last"]) for one in told["metrics"]] == [
        (name, len(values), values[-1]) for name, values in metrics.items()
    ]
    titles = await page.locator(".chart a title").all_text_contents()
    for point in online:
        share, judged = point.weighted, point.success.judged
        rate = f"{share.rate:.0%} [{share.low:.0%}, {share.high:.0%}] n={judged}"
        assert f"policy {point.version}: {rate}, as played {point.success.successes} of {judged}" in titles
    await page.goto(f"{shown.base}/episodes?outcome=success")
    assert await page.locator("table.rows tbody a.id").all_text_contents() == [row.episode for row in some]


async def test_the_first_chart_is_success_on_held_out_tasks_and_a_family_has_its_own(
    shown: Shown, page: Page
) -> None:
    evaluations = [told.fact for told in FACTS[:EARLIER] if isinstance(told.fact, EvaluationFinished)]
    family = evaluations[-1].results[0].family
    await page.goto(f"{shown.base}/")
    assert await page.locator("section").first.get_attribute("id") == "evaluations"
    titles = await page.locator("#evaluations .chart a title").all_text_contents()
    half = len(titles) // 2
    for temperature, own in ((0.0, titles[:half]), (1.0, titles[half:])):
        for title, evaluation in zip(own, evaluations, strict=True):
            results = [result for result in evaluation.results if result.temperature == temperature]
            won = sum(result.successes for result in results)
            judged = won + sum(result.failures for result in results)
            band = wilson(won, judged)
            assert f": {band.rate:.0%} [{band.low:.0%}, {band.high:.0%}] n={judged}" in title
    await page.click("#evaluations summary")
    await page.click(f"#evaluations a:text-is('{family}')")
    assert family in (await page.locator("#evaluations h2").text_content() or "")
    newest = evaluations[-1].results[0]
    assert f"n={newest.successes + newest.failures}," in await page.locator(".legend").inner_text()
    await page.click("#evaluations a:text-is('All families')")
    assert family not in (await page.locator("#evaluations h2").text_content() or "")


async def test_a_position_in_the_log_is_a_page_of_that_moment(shown: Shown, page: Page) -> None:
    at = EARLIER // 2
    model = shown.handle.read_model()
    with model.reading() as connection:
        then = run_status(connection, as_of=at)
    model.close()
    await page.goto(f"{shown.base}/?as_of={at}")
    assert f"{sum(then.episodes.values())}\nepisodes" in await page.locator(".figures").inner_text()
    assert (
        await page.locator("nav.views a").first.get_attribute("href") == f"/{shown.handle.name}/?as_of={at}"
    )
    told = await shown.twin(f"/overview.json?as_of={at}")
    assert told["summary"] == plain(then)


async def test_the_first_page_lists_the_runs_and_draws_the_chosen_ones_in_one_chart(
    shown: Shown, page: Page
) -> None:
    home = f"http://127.0.0.1:{shown.port}"
    name = shown.handle.name
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.goto(f"{home}/?run={OTHER}&run={name}&measure=online")
        assert await serious(page) == [], scheme
    await page.set_viewport_size({"width": 390, "height": 844})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await page.goto(home)
    assert await page.locator("tbody tr").count() == 2
    assert await page.locator("section .legend > span").count() == 2, (
        "the newest are drawn before any is chosen"
    )
    await page.goto(f"{home}/?measure=online")
    assert await page.locator("section .chart").count() == 0
    await page.locator(f"input[value='{name}']").check()
    await page.wait_for_url(f"**/?run={name}&**")
    await page.locator(f"input[value='{OTHER}']").check()
    await page.wait_for_url(f"**run={OTHER}**")
    await page.select_option("select[name=measure]", "loss")
    await page.wait_for_url("**measure=loss**")
    assert await page.locator("section .chart .line").count() == 2
    assert await page.locator("section .legend > span").count() == 2
    _, _, text = await asyncio.to_thread(shown.fetch_root, "/_runs.json")
    rows = {row["run"]: row for row in json.loads(text)["runs"]}
    with shown.handle.read_model().reading() as connection:
        summary = run_summary(connection)
    assert rows[name]["updates"] == summary.updates
    assert rows[name]["episodes"] == sum(summary.episodes.values())
    assert rows[name]["state"] == "stopped"
    await page.goto(f"{home}/?run=no-such-run&measure=nonsense&over=nonsense")
    assert await page.locator("tbody tr").count() == 2


async def test_a_run_that_cannot_be_read_says_why_and_hides_no_other(tmp_path: Path, shown: Shown) -> None:
    shutil.copytree(
        shown.handle.home / "runs" / OTHER,
        tmp_path / "runs" / OTHER,
        ignore=shutil.ignore_patterns("*.sqlite*"),
    )
    rows = RunRows(OpenRuns(tmp_path)).all()
    assert [(row.run, row.state) for row in rows] == [(OTHER, "not read")]
    assert "has no read model yet" in rows[0].note


async def test_two_runs_stand_side_by_side(shown: Shown, page: Page) -> None:
    models = [open_run(name, home=shown.handle.home).read_model() for name in (OTHER, shown.handle.name)]
    with models[0].reading() as left, models[1].reading() as right:
        found = compare_runs(left, right)
    for model in models:
        model.close()
    told = await shown.twin(f"/compare.json?with={OTHER}")
    assert told["comparison"] | {"updates": []} == plain(found) | {"updates": []}
    assert told["comparison"]["updates"] == plain(found)["updates"][: len(told["comparison"]["updates"])]
    await page.goto(f"{shown.base}/compare")
    assert await page.get_by_label(OTHER).is_checked(), "the run made before"
    await page.locator("select[name=over]").select_option("policy")
    await page.wait_for_url(f"**/compare?with={OTHER}&over=policy")
    assert [chart["label"] for chart in told["charts"]][:2] == [
        "success on held-out tasks",
        "success of online episodes",
    ]
    assert await page.locator("svg.chart").count() == len(told["charts"])
    legends = page.locator("section .legend")
    assert [await one.locator("span.key").count() for one in await legends.all()] == [2] * len(told["charts"])


async def test_two_runs_attempts_at_the_same_task_are_compared_step_by_step(shown: Shown, page: Page) -> None:
    same_tasks = (await shown.twin(f"/compare.json?with={OTHER}"))["same_tasks"]
    differ = [one["left"]["outcome"] != one["right"]["outcome"] for one in same_tasks]
    assert differ == sorted(differ, reverse=True)
    assert len(same_tasks) > 0
    await page.goto(f"{shown.base}/compare?with={OTHER}")
    await page.locator("#tasks a", has_text="first difference").first.click()
    sides = page.locator(".pair > section[aria-label]")
    assert await sides.nth(0).locator("h2 a").inner_text() == same_tasks[0]["right"]["episode"]
    assert await sides.nth(1).locator("h2 a").inner_text() == same_tasks[0]["left"]["episode"]
    for place, name in enumerate((shown.handle.name, OTHER)):
        assert name in await sides.nth(place).locator("h2").inner_text()
    assert await page.locator("#difference[open]").count() == 1
    assert await serious(page) == []
    await page.select_option("select[name=shade]", "advantage")
    await page.wait_for_url("**shade=advantage*")
    assert OTHER in await sides.nth(1).locator("h2").inner_text(), "a choice keeps the other run"
    await sides.nth(1).locator("h2 a").click()
    await page.wait_for_url(f"**/{OTHER}/episodes/{same_tasks[0]['left']['episode']}")
    assert (await shown.get(f"/episodes/{EPISODE}/pair?with={EPISODE}&run=none"))[0] == 404


async def test_many_runs_lie_over_each_other_in_their_own_colors_over_any_axis(
    tmp_path: Path, browser: Browser
) -> None:
    home = tmp_path / "home"
    names = ("one", "two", "three", "four")
    for seed, name in enumerate(names, 1):
        facts = [told for told in a_run(seed, groups=3, run=name) if not isinstance(told.fact, RunForked)]
        await make_home(home, facts, run=name)
        await asyncio.to_thread(fold, home)
    async with served(home) as base, opened(browser, base) as tab:
        chosen = "&".join(f"with={name}" for name in names[:3])
        for over in ("update", "policy", "position", "episodes", "time"):
            answer = await tab.goto(f"{base}/four/compare?{chosen}&over={over}")
            assert answer is not None
            assert answer.status == 200
            (data,) = (
                await tab.locator(".curves").nth(1).evaluate_all("all => all.map(one => one.dataset.chart)")
            )
            chart = json.loads(data)
            assert [curve["run"] for curve in chart["curves"]] == list(names), over
            assert len({curve["color"] for curve in chart["curves"]}) == 4
        colors = {curve["run"]: curve["color"] for curve in chart["curves"]}
        assert await serious(tab) == []
        for name, color in colors.items():
            await tab.goto(f"{base}/{name}/")
            assert await tab.locator(f"header .key.curve-{color}").count() == 1
            drawn = await tab.locator(".curves").evaluate_all("all => all.map(one => one.dataset.chart)")
            assert {json.loads(one)["curves"][0]["color"] for one in drawn} == {color}
        await tab.goto(f"{base}/?run=two&run=four&measure=online")
        data = await tab.locator(".curves").get_attribute("data-chart")
        home_colors = {curve["run"]: curve["color"] for curve in json.loads(data or "")["curves"]}
        assert home_colors == {name: colors[name] for name in ("two", "four")}


async def test_keys_lead_through_an_episode_and_open_what_its_policy_read(shown: Shown, page: Page) -> None:
    await page.goto(f"{shown.base}/episodes/{EPISODE}")
    await page.keyboard.press("j")
    await page.keyboard.press("o")
    await page.wait_for_selector(".step.here .piece .tokens")
    detail = await shown.twin(f"/episodes/{EPISODE}.json")
    step = await shown.twin(f"/steps/{detail['detail']['steps'][0]['position']}.json")
    assert step["episode"] == EPISODE
    assert step["prompt_tokens"] == 64
    assert await page.locator(".step.here .token").count() == len(step["tokens"]) > 3
    # what a mouse finds in a title stands in a table, too
    await page.locator(".step.here").get_by_text("Log-probabilities, token by token").click()
    rows = await page.locator(".step.here .logprobs tbody tr").all_inner_texts()
    assert [f"{token['logprob']:.3f}" in row for token, row in zip(step["tokens"], rows, strict=True)] == [
        True
    ] * len(rows)
    await page.goto(f"{shown.base}/episodes")
    await page.keyboard.press("]")
    await page.wait_for_url("**/timeline")


async def test_the_film_strip_has_the_recorded_images_and_what_was_touched(shown: Shown, page: Page) -> None:
    await page.goto(f"{shown.base}/episodes/{EPISODE}")
    first = page.locator(".strip li").first
    image = await first.locator("image").get_attribute("href")
    assert image is not None
    status, headers, body = await shown.get(image.removeprefix(f"/{shown.handle.name}"))
    assert (status, headers["content-type"], body.encode()) == (200, "image/jpeg", IMAGE)
    box = {
        name: await first.locator(".touched").get_attribute(name) for name in ("x", "y", "width", "height")
    }
    assert [float(value or 0) for value in box.values()] == [10 - 3, 20 - 3, 50 + 6, 30 + 6]
    status, _, _ = await shown.get(f"/episodes/{EPISODE}/pictures/{digest_hex(b'of somebody else')}")
    assert status == 404


def steps_of(episode: str) -> list[StepTaken]:
    return [
        told.fact
        for told in FACTS[:EARLIER]
        if isinstance(told.fact, StepTaken) and told.fact.episode == episode
    ]


async def test_two_members_of_a_group_stand_side_by_side_with_their_first_difference(
    shown: Shown, browser: Browser
) -> None:
    members = (await shown.twin(f"/episodes/{EPISODE}.json"))["members"]
    others = [row["episode"] for row in members if row["episode"] != EPISODE and row["steps"]]
    kinds = set()
    base = f"http://127.0.0.1:{shown.port}"
    async with opened(browser, base, java_script_enabled=False) as page:
        for other in others:
            own, theirs = steps_of(EPISODE), steps_of(other)
            what, step = next(
                (what, place)
                for place, (one, two) in enumerate(zip(own, theirs, strict=False))
                for what, differs in (
                    ("prompt", one.prompt_ids != two.prompt_ids),
                    ("answer", one.action_ids != two.action_ids),
                )
                if differs
            )
            told = await shown.twin(f"/episodes/{EPISODE}/pair.json?with={other}")
            assert (told["difference"]["what"], told["difference"]["step"]) == (what, step)
            kinds.add(what)
            await page.goto(f"{shown.base}/episodes/{EPISODE}/pair?with={other}")
            assert await page.locator(".paired").count() == max(len(own), len(theirs))
            assert await page.locator("#difference[open] > summary b").inner_text() == f"Step {step}"
            assert await page.locator("#difference .pair > section").count() == 2
        assert kinds == {"answer"}, "members of a group begin with the same prompt"
        await page.goto(f"{shown.base}/episodes/{EPISODE}/pair")
        await page.select_option("select[name=with]", others[-1])
        await page.click("text=Show")
        assert f"with={others[-1]}" in page.url
        assert await page.locator(".pair > section").nth(1).locator("h2 a").inner_text() == others[-1]
        await page.goto(f"{shown.base}/episodes/{EPISODE}/pair?with={EPISODE}")
        assert "gave the same answers" in await page.inner_text(".health")
        stranger = next(
            told.fact.episode
            for told in FACTS[:EARLIER]
            if isinstance(told.fact, StepTaken)
            and told.fact.episode not in [row["episode"] for row in members]
        )
        assert (await shown.get(f"/episodes/{EPISODE}/pair?with={stranger}"))[0] == 200
        assert (await shown.get(f"/episodes/{EPISODE}/pair?with=ep_none"))[0] == 404


async def test_steps_have_their_share_of_the_updates_that_were_explained(shown: Shown, page: Page) -> None:
    planned = [told.fact for told in FACTS[:EARLIER] if isinstance(told.fact, BatchPlanned)]
    for trained in {part.episode: None for plan in planned for part in plan.episodes}:
        before = await shown.twin(f"/episodes/{trained}.json")
        if before["unexplained"] and trained != EPISODE:
            break
    assert before["shares"] == {}
    first = before["unexplained"][0]
    await page.goto(f"{shown.base}/episodes/{trained}")
    assert f"hindcast why update={first} {shown.handle.name}" in await page.inner_text("main")
    moving = msgspec.structs.replace(EXPLAINED.episodes[0], episode=trained)
    explained = msgspec.structs.replace(
        EXPLAINED, question=f"update {first}", first_update=first, last_update=first, episodes=(moving,)
    )
    save_explanation(run_folder(shown.handle.home, shown.handle.name), explained)
    after = await shown.twin(f"/episodes/{trained}.json")
    assert after["unexplained"] == before["unexplained"][1:]
    await page.reload()
    values = page.locator("#listed-step-0 .value", has_text="gradient")
    assert "50.0 % of the gradient, pull on store/find_price" in await values.inner_text()
    await page.click(f"main a:text-is('why update {first}')")
    assert await page.locator(f"h2:text-is('update {first}')").count() == 1


async def test_the_page_of_a_run_is_exported_with_its_explanations_and_pictures(
    shown: Shown, tmp_path: Path
) -> None:
    done = await asyncio.to_thread(
        CliRunner().invoke,
        app,
        ["export", shown.handle.name, "--format", "html", "--to", str(tmp_path / "out"), "--json"],
        env={"HINDCAST_HOME": str(shown.handle.home)},
    )
    assert done.exit_code == 0, done.output
    counts = json.loads(done.stdout)["counts"]
    assert counts["episodes"] == len(list((tmp_path / "out" / "episodes").iterdir())) > 0
    assert counts["other pages"] == len(list((tmp_path / "out").glob("*.html")))
    listed = (tmp_path / "out" / "consumers.html").read_text()
    assert "were when these files were written" in listed
    assert all(f"<td>{name}<td>" in listed for name in ("projector", "learner", "curriculum"))
    whys = [file.read_text() for file in (tmp_path / "out").glob("why*.html")]
    for question in list_explanations(run_folder(shown.handle.home, shown.handle.name)).values():
        assert any(f"<h2>{question}</h2>" in text for text in whys)
    assert (tmp_path / "out" / "pictures" / f"{digest_hex(IMAGE)}.jpg").read_bytes() == IMAGE


async def test_tokens_are_shaded_by_the_advantage_of_their_step(shown: Shown, page: Page) -> None:
    with shown.handle.read_model().reading() as connection:
        trained = {
            str(row.episode): (int(row.step), float(row.advantage))
            for row in connection.execute(
                sql_text(
                    "SELECT s.episode, s.step, u.advantage FROM update_samples u JOIN batch_samples b "
                    "ON b.batch = u.batch AND b.minibatch = u.minibatch AND b.place = u.place "
                    "JOIN steps s ON s.position = b.step_position "
                    "WHERE u.model = 'policy' AND u.advantage <> 0 ORDER BY u.position"
                )
            )
        }
    episode, (step, advantage) = list(trained.items())[-1]
    values = await shown.twin(f"/episodes/{episode}.json")
    position = next(row["position"] for row in values["detail"]["steps"] if row["step"] == step)
    assert values["advantages"][str(position)] == pytest.approx(advantage)
    await page.goto(f"{shown.base}/episodes/{episode}#step-{step}")
    await page.click("main a:text-is('advantage')")
    await page.goto(f"{page.url}#step-{step}")
    answer = page.locator("#player .answer")
    assert ("up-" if advantage > 0 else "down-") in (await answer.get_attribute("class") or "")
    token = answer.locator(".token").first
    await token.wait_for()
    shaded = await token.evaluate("one => getComputedStyle(one).backgroundColor")
    assert shaded not in ("rgba(0, 0, 0, 0)", "transparent")


async def test_what_pages_and_models_wrote_is_text(shown: Shown, page: Page) -> None:
    for path in (f"episodes/{EPISODE}", f"episodes/{EPISODE}/pair", "episodes", "curriculum", "settings"):
        await page.goto(f"{shown.base}/{path}")
        assert await page.evaluate("window.pwned") is None
        assert await page.locator("main script, main img").count() == 0
    await page.goto(f"{shown.base}/episodes/{EPISODE}")
    assert await page.locator(".instruction").inner_text() == HOSTILE
    _, headers, _ = await shown.get(f"/episodes/{EPISODE}")
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


async def test_trouble_is_worded_for_people_and_programs(shown: Shown) -> None:
    status, _, text = await shown.get("/episodes/ep_no")
    assert status == 404
    assert "there is no episode &#39;ep_no&#39;" in text
    assert f'href="/{shown.handle.name}/"' in text
    status, _, text = await shown.get("/overview.json?as_of=999999")
    assert status == 404
    assert json.loads(text)["error"] == "NotInReadModel"
    status, _, text = await shown.get("/episodes?policy=seven")
    assert status == 400
    assert "must be a whole number" in text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/episodes.json?policy=99999999999999999999", 400),
        ("/episodes.json?policy=1-99999999999999999999", 400),
        ("/timeline.json?seconds=-5", 200),
        ("/timeline.json?until=99999999999999999999999", 400),
        ("/lineage/update/99999999999999999999.json", 404),
        ("/lineage/update/%C2%B2.json", 404),
        ("/steps/99999999999999999999.json", 404),
        ("/steps/0.json", 404),
        ("/settings.json?as_of=0", 404),
        ("/overview.json?as_of=0", 404),
        ("/no/such/page.json", 404),
    ],
)
async def test_no_address_makes_it_fail(shown: Shown, path: str, expected: int) -> None:
    status, _, text = await shown.get(path)
    assert status == expected, text
    told = json.loads(text)
    assert expected == 200 or told["message"]


async def test_a_link_keeps_the_position_and_the_filters(shown: Shown, page: Page) -> None:
    at = EARLIER // 2
    await page.goto(f"{shown.base}/?as_of={at}")
    links = await page.eval_on_selector_all(".chart a", "all => all.map(one => one.href.baseVal)")
    asked = [parse_qs(urlsplit(link).query) for link in links]
    assert [one["as_of"] for one in asked] == [[str(at)]] * len(links)
    assert {origin for one in asked for origin in one["origin"]} == {"evaluation", "online"}
    one, two, both = [
        {
            row["episode"]
            for row in (await shown.twin(f"/episodes.json?policy={chosen}&as_of={at}"))["episodes"]
        }
        for chosen in ("0", "1", "0-1")
    ]
    assert one | two == both != one
    await page.goto(f"{shown.base}/episodes?outcome=success&as_of={at}")
    now = await page.locator("a.now").get_attribute("href")
    assert now == f"/{shown.handle.name}/episodes?outcome=success"


async def test_only_this_machines_names_open_it(shown: Shown) -> None:
    for host in ("evil.example", "[::1", "localhost.evil.example", "127.0.0.1@evil.example", ""):
        for path in ("/", f"/?token={TOKEN}"):
            status, headers, _ = await shown.get(path, Host=host)
            assert status == 421, host
    assert "content-security-policy" in headers


async def test_other_users_of_the_machine_need_the_token(shown: Shown) -> None:
    async def ask(path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        return await asyncio.to_thread(shown.ask, path, **headers)

    cookie = f"hindcast-{shown.port}"
    for path in ("/", "/overview.json", "/live", f"/episodes/{EPISODE}", "/steps/9.json", "/no/such"):
        assert (await ask(path))[0] == 401, path
    for given in (
        {"Cookie": f"{cookie}=wrong"},
        {"Cookie": f"{cookie}="},
        {"Cookie": f"hindcast-1={TOKEN}"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer"},
    ):
        assert (await ask("/", **given))[0] == 401, given
    for token in ("wrong", "", "%C3%A9", TOKEN[:-1]):
        status, headers, text = await ask(f"/?token={token}")
        assert status == 401
        assert "set-cookie" not in headers
    assert "`hindcast page --address` prints it" in text
    assert headers["content-type"].startswith("text/plain")
    status, headers, _ = await ask(f"/episodes?outcome=success&token={TOKEN}")
    assert (status, headers["location"]) == (303, f"{shown.base}/episodes?outcome=success")
    assert headers["set-cookie"] == f"{cookie}={TOKEN}; HttpOnly; Path=/; SameSite=strict"
    assert (await ask("/overview.json", Cookie=f"{cookie}={TOKEN}"))[0] == 200
    assert (await ask("/overview.json", Authorization=f"Bearer {TOKEN}"))[0] == 200


async def test_the_token_of_a_home_outlives_its_page(shown: Shown) -> None:
    tokens = set()
    for _ in range(2):
        served = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from hindcast.app.cli import main; main()",
            "page",
            "--json",
            env={**os.environ, "HINDCAST_HOME": str(shown.handle.home)},
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert served.stdout is not None
            address = json.loads(await asyncio.wait_for(served.stdout.readline(), 60))["address"]
            base, _, token = address.partition("/?token=")
            again = Shown(shown.handle, base)
            assert (await asyncio.to_thread(again.ask, "/"))[0] == 401
            assert (await asyncio.to_thread(again.ask, "/", Cookie=f"hindcast-{again.port}={token}"))[
                0
            ] == 200
        finally:
            served.terminate()
            await served.communicate()
        tokens.add(token)
    assert len(tokens) == 1
    assert len(token) >= 43
    assert stat.S_IMODE((shown.handle.home / "secrets" / "page").stat().st_mode) == 0o600
    none = await asyncio.to_thread(
        CliRunner().invoke, app, ["page", "--address"], env={"HINDCAST_HOME": str(shown.handle.home)}
    )
    assert none.exit_code == 1
    assert "serves a page now" in str(none.exception)


async def test_a_page_that_is_open_follows_the_run_and_keeps_what_was_opened(
    shown: Shown, page: Page
) -> None:
    """From here on the tests change the run: it tells the rest of it."""
    await page.goto(f"{shown.base}/episodes/{EPISODE}")
    await page.keyboard.press("j")
    await page.keyboard.press("o")
    await page.wait_for_selector(".step.here .piece .tokens")
    await tell(shown.handle, FACTS[EARLIER:])
    async with shown.handle.connect_log("projector") as log:
        settings = shown.handle.settings.storage
        projecting = asyncio.create_task(run_projector(log, shown.handle.database_url, settings))
        await page.locator("footer", has_text=f"of {len(FACTS)}").wait_for()
        assert await page.evaluate("document.activeElement.classList.contains('here')")
        projecting.cancel()
        await asyncio.gather(projecting, return_exceptions=True)
    assert await page.locator(".step .piece .tokens").count() == 1


async def test_rows_under_a_readers_eyes_stay_where_they_are_and_new_ones_wait(
    shown: Shown, page: Page
) -> None:
    await page.set_viewport_size({"width": 1000, "height": 500})
    await page.goto(f"{shown.base}/episodes")
    row = page.locator("table.rows tbody tr").nth(5)
    await row.hover()
    before = await row.bounding_box()
    named = await page.locator("table.rows tbody tr").evaluate_all("all => all.map(one => one.id)")
    requested = next(told.fact for told in FACTS if isinstance(told.fact, EpisodeRequested))
    begun = next(told for told in FACTS if isinstance(told.fact, EpisodeStarted))
    new = [f"ep_new{number}" for number in range(3)]
    facts = [
        Told(told.producer, name, msgspec.structs.replace(told.fact, episode=name))
        for name in new
        for told in (next(told for told in FACTS if told.fact is requested), begun)
    ]
    await tell(shown.handle, facts)
    assert not await asyncio.to_thread(bring_up, [shown.handle])
    await page.locator("#newer").wait_for()
    assert await page.locator("#newer").inner_text() == "3 newer episodes: show"
    after = await page.locator("table.rows tbody tr").evaluate_all("all => all.map(one => one.id)")
    assert after == named
    assert await row.bounding_box() == before
    await page.locator("#newer").click()
    await page.locator(f"#row-{new[-1]}").wait_for()
    assert await page.locator("#newer").count() == 0


async def test_pages_are_searched_once_a_visitor_has_them_indexed_and_until_they_delete_the_index(
    shown: Shown, page: Page
) -> None:
    rebuilt = await asyncio.to_thread(fold_report, shown.handle.home)
    await page.goto(f"{shown.base}/episodes?text=rooibos")
    assert "Pages were not searched" in await page.inner_text(".empty")
    await page.locator(".index summary").click()
    await page.get_by_role("button", name="Index pages").click()
    await page.locator(".index summary", has_text="Pages are searched, too").wait_for()
    twin = await shown.twin("/episodes.json?text=rooibos")
    assert twin["index"]["pages"] == 1
    assert twin["index"]["size_bytes"] > 0
    found = {row["episode"] for row in twin["episodes"]}
    assert found
    assert {*twin["found"]} == found
    assert {(one["where"], one["step"]) for one in twin["found"].values()} == {("page", 1)}
    await page.goto(f"{shown.base}/episodes?text=rooibos")
    await page.locator("a", has_text="page of step 1").first.click()
    assert page.url.endswith("#step-1")
    line = await asyncio.to_thread(
        CliRunner().invoke,
        app,
        ["episode", "list", shown.handle.name, "--text", "ROOIBOS", "--json"],
        env={"HINDCAST_HOME": str(shown.handle.home)},
    )
    assert {row["episode"] for row in json.loads(line.output)["episodes"]} == found
    again = await asyncio.to_thread(fold_report, shown.handle.home)
    assert again["identical"]
    assert again["position"] == rebuilt["position"]
    await page.goto(f"{shown.base}/episodes")
    await page.locator(".index summary").click()
    assert await serious(page) == []
    await page.get_by_role("button", name="Delete the index").click()
    await page.locator(".index summary", has_text="Search pages, too").wait_for()
    assert (await shown.twin("/episodes.json?text=rooibos"))["episodes"] == []
    done = await asyncio.to_thread(
        CliRunner().invoke,
        app,
        ["episode", "index", shown.handle.name, "--json"],
        env={"HINDCAST_HOME": str(shown.handle.home)},
    )
    assert json.loads(done.output)["pages"] == 1
    assert {row["episode"] for row in (await shown.twin("/episodes.json?text=rooibos"))["episodes"]} == found


async def test_an_index_that_is_finished_while_its_page_is_made_leads_to_a_new_page(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([IndexBuild(3, True, "")])
    monkeypatch.setattr(IndexBuilds, "state", lambda _self, _run: next(states, IDLE))
    _, _, text = await shown.get("/episodes")
    assert "are being indexed" not in text
    assert ', indexing at 3"' in text, "a mark that the next look does not have"


async def test_an_episode_can_be_taken_along(shown: Shown) -> None:
    ended = next(told.fact.episode for told in FACTS if isinstance(told.fact, EpisodeEnded))
    _, _, text = await shown.get(f"/episodes/{ended}")
    links = re.findall(r'href="[^"]*(/episodes/[^"]*/file/\w+)" download', text)
    assert len(links) == 3
    for link in links:
        status, headers, content = await shown.get(link)
        assert (status, headers["content-disposition"].split(";")[0]) == (200, "attachment"), content
        assert ended in content
    status, _, _ = await shown.get(f"/episodes/{ended}/file/csv")
    assert status == 404


async def test_a_visitor_disputes_a_verdict_and_it_is_told_wherever_the_verdict_is(
    shown: Shown, page: Page
) -> None:
    before = (await shown.twin("/overview.json"))["summary"]
    told = (await shown.twin("/episodes.json?outcome=failure"))["episodes"]
    episode = told[0]["episode"]
    await page.goto(f"{shown.base}/episodes/{episode}")
    await page.locator(".say summary").first.click()
    await page.fill(".say input[name=reason]", HOSTILE)
    await page.fill(".say input[name=author]", "me")
    await page.locator(".say button").first.click()
    await page.locator(".disputed").wait_for()
    assert HOSTILE in await page.locator(".disputed").inner_text()
    (one,) = (await shown.twin(f"/episodes/{episode}.json"))["detail"]["disputes"]
    assert (one["author"], one["outcome"], one["judge"]) == ("me", "success", "rules")
    assert one["position"] == before["position"] + 1
    assert (await shown.twin("/episodes.json?outcome=failure"))["episodes"][0]["episode"] == episode
    done = await asyncio.to_thread(
        CliRunner().invoke, app, ["run", "show", "--json"], env={"HINDCAST_HOME": str(shown.handle.home)}
    )
    assert json.loads(done.output)["disputed"] == before["disputed"] + 1
    await page.goto(f"{shown.base}/lineage/episode/{episode}")
    assert "verdict.disputed" in (await page.locator("main").text_content() or ""), "among the folded facts"
    async with shown.handle.connect_log() as log:
        (stored,) = await log.read(after=one["position"] - 1, limit=1)
    fact = decode(stored)
    assert fact is not None
    assert fact.fact == VerdictDisputed(
        episode=episode, judge=fact.fact.judge, author="me", reason=HOSTILE, outcome="success"
    )


async def test_a_visitor_resumes_and_pauses_the_run(shown: Shown, page: Page) -> None:
    assert (await shown.twin("/overview.json"))["summary"]["pauses"] == {"me": "lunch"}
    await page.goto(f"{shown.base}/")
    await page.get_by_role("button", name="Resume").click()
    await page.get_by_role("button", name="Resume").wait_for(state="detached")
    assert (await shown.twin("/overview.json"))["summary"]["pauses"] == {}
    assert await page.locator(".control").count() == 0, (
        "a run that has ended begins nothing that could be paused"
    )
    await tell(shown.handle, [next(event for event in FACTS if isinstance(event.fact, RunResumed))])
    assert not await asyncio.to_thread(bring_up, [shown.handle])
    await page.reload()
    await page.locator(".control summary", has_text="next start").click()
    await page.fill(".control input[name=reason]", "dinner")
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_role("button", name="Resume").wait_for()
    assert list((await shown.twin("/overview.json"))["summary"]["pauses"].values()) == ["dinner"]
    assert "paused by" in await page.locator(".health").inner_text()
    assert await page.get_by_role("button", name="Drain").count() == 0, (
        "nothing goes on that could be drained"
    )


async def test_nobody_elses_form_is_taken(shown: Shown) -> None:
    position = (await shown.twin("/overview.json"))["position"]
    base = shown.base.rpartition("/")[0]

    def send(origin: str, word: str) -> int:
        data = urlencode({"form": word, "command": "pause", "reason": "theirs"}).encode()
        headers = {"Origin": origin, "Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(f"{shown.base}/control", data=data, headers=headers)
        try:
            return int(urllib.request.urlopen(request, timeout=60).status)
        except urllib.error.HTTPError as error:
            return error.code

    _, _, text = await shown.get("/")
    word = text.split('name="form" value="')[1].split('"')[0]
    for origin, sent in (("https://evil.example", word), ("null", word), ("", word), (base, "guessed")):
        assert await asyncio.to_thread(send, origin, sent) == 403, origin
    assert (await shown.twin("/overview.json"))["position"] == position
