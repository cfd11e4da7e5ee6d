"""What the page's scripts add in a real browser: charts with a crosshair, zoom and downloads, and the episode's player."""

import asyncio
import csv
import json
import re
from collections.abc import AsyncIterator
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page

from hindcast.app.page import charts
from hindcast.app.runs.runs import RunHandle
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node
from hindcast.core.domain.observation import Page as DomainPage
from hindcast.core.ids import digest_hex
from hindcast.events.catalogue import EpisodeEnded, RunForked, StepTaken, UpdateApplied
from hindcast.events.envelope import BlobRef
from hindcast.storage.readmodel.projector import run_projector
from stories.recorded_home import make_home, tell
from stories.served_page import IMAGE, PICTURE, fold, launched, opened, served
from stories.synthetic_run import Told, a_run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.broker, pytest.mark.browser]

RUN, OTHER = "tale", "other"


def facts_of(seed: int, run: str) -> list[Told]:
    """A run whose loss changes, and whose first steps have a picture."""
    facts = []
    for told in a_run(seed, groups=8, run=run):
        fact = told.fact
        if isinstance(fact, RunForked):
            continue
        if isinstance(fact, UpdateApplied):
            fact = msgspec.structs.replace(fact, metrics=fact.metrics | {"loss": 1 / fact.update})
        if isinstance(fact, StepTaken) and fact.index == 0:
            fact = msgspec.structs.replace(fact, screenshot=PICTURE)
        if isinstance(fact, StepTaken) and fact.index in (1, 2):
            seen = PAGES[fact.index - 1]
            fact = msgspec.structs.replace(
                fact,
                observation=BlobRef(digest_hex(seen), len(seen)),
                action=Action(name="Click", element=50),
            )
        if isinstance(fact, EpisodeEnded):
            fact = msgspec.structs.replace(
                fact, final_observation=BlobRef(digest_hex(PAGES[1]), len(PAGES[1]))
            )
        facts.append(told._replace(fact=fact))
    return facts


PAGES = [
    msgspec.msgpack.encode(
        DomainPage(
            url="http://127.0.0.1/",
            title="Shop",
            nodes=(
                Node(kind="heading", tag="h1", text="Cart"),
                *(Node(kind="button", tag="button", text=f"Item {id_}", id=id_) for id_ in range(shown)),
            ),
        )
    )
    for shown in (60, 62)
]
"""Pages of the second step, and of the third and the end."""
FACTS = facts_of(1, RUN)
EARLIER = len(FACTS) - 40
EPISODE = next(
    told.fact.episode for told in FACTS if isinstance(told.fact, StepTaken) and told.fact.index == 2
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    home = tmp_path_factory.mktemp("page") / "home"
    await make_home(home, facts_of(2, OTHER), run=OTHER)
    await asyncio.to_thread(fold, home)
    handle = await make_home(home, FACTS[:EARLIER], run=RUN)
    for content in (IMAGE, *PAGES):
        handle.blobs.put(content)
    await asyncio.to_thread(fold, home)
    return handle


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base(run: RunHandle) -> AsyncIterator[str]:
    async with served(run.home) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, base: str) -> AsyncIterator[Page]:
    async with opened(browser, base) as tab:
        yield tab


def chart(page: Page, label: str) -> Locator:
    """A chart by what its values are."""
    return page.locator(".curves", has=page.locator(f"[aria-label^='{label}.']"))


async def point_at(page: Page, plot: Locator, across: float) -> None:
    """Move the pointer to a share of the plane's width."""
    plane = plot.locator(".u-over")
    await plane.scroll_into_view_if_needed()
    box = await plane.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + across * box["width"], box["y"] + box["height"] / 2)


async def drag(page: Page, plot: Locator, begin: float, end: float) -> None:
    await point_at(page, plot, begin)
    await page.mouse.down()
    await point_at(page, plot, (begin + end) / 2)
    await point_at(page, plot, end)
    await page.mouse.up()


async def values(plot: Locator) -> Any:
    return json.loads(await plot.get_attribute("data-chart") or "")


async def test_the_crosshair_shows_the_values_of_all_runs_with_their_intervals(page: Page, base: str) -> None:
    await page.goto(f"{base}/?run={RUN}&run={OTHER}&measure=online&over=policy")
    plot = chart(page, "success of online episodes")
    drawn = await values(plot)
    assert not await plot.locator("svg.chart").is_visible(), "the plot takes the picture's place"
    await point_at(page, plot, 0.001)
    readout = await plot.locator(".readout").inner_text()
    assert readout.startswith("policy version 0\n")
    for curve in drawn["curves"]:
        assert curve["x"][0] == 0
        low, high = (round(100 * curve[side][0]) for side in ("low", "high"))
        assert (
            f"{curve['name']}: {round(100 * curve['y'][0])}% [{low}%, {high}%] n={curve['n'][0]}" in readout
        )
    keys = [await plot.locator(f".readout .key.curve-{curve['color']}").count() for curve in drawn["curves"]]
    assert keys == [1, 1]
    for curve in drawn["curves"]:
        row = page.locator("tbody tr", has=page.locator(f"input[value='{curve['run']}']"))
        assert await row.locator(f".key.curve-{curve['color']}").count() == 1, "one color in table and chart"


async def test_a_drag_zooms_all_charts_over_the_same_axis_and_a_double_click_resets_them(
    page: Page, base: str
) -> None:
    await page.goto(f"{base}/{RUN}/?over=update")
    plot, other = chart(page, "Success by policy version"), chart(page, "loss")
    last = (await values(plot))["curves"][0]["last"][-1]
    await drag(page, plot, 0.4, 0.6)
    for one in (plot, other):
        await one.get_by_role("button", name="Reset zoom").wait_for()
    await point_at(page, plot, 0.999)
    readout = await plot.locator(".readout").inner_text()
    assert f"policy {last}" not in readout.splitlines()[-1]
    await plot.locator(".u-over").dblclick()
    for one in (plot, other):
        await one.get_by_role("button", name="Reset zoom").wait_for(state="hidden")
    await point_at(page, plot, 0.999)
    assert f"policy {last}" in await plot.locator(".readout").inner_text()


async def test_a_stretch_of_pooled_values_is_drawn_one_by_one(
    page: Page, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts.pool_metric, "__kwdefaults__", {"most": 6, "span": None})
    await page.goto(f"{base}/{RUN}/")
    plot = chart(page, "loss")
    (pooled,) = (await values(plot))["curves"]
    assert len(pooled["x"]) <= 6
    await drag(page, plot, 0.6, 0.7)
    await point_at(page, plot, 0.5)
    await plot.locator(".readout", has_not_text="[").wait_for()
    (update,) = re.findall(r"^update (\d+)\n", await plot.locator(".readout").inner_text())
    assert f"{1 / int(update):.4g}" in await plot.locator(".readout").inner_text()


async def test_a_drag_over_the_timeline_enlarges_the_stretch(page: Page, base: str) -> None:
    await page.goto(f"{base}/{RUN}/timeline?seconds=100")
    lanes = page.locator("svg.lanes")
    until = int(await page.locator(".scroll[data-until]").get_attribute("data-until") or 0)
    box = await lanes.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + 0.5 * box["width"], y)
    await page.mouse.down()
    await page.mouse.move(box["x"] + 0.6 * box["width"], y)
    await page.mouse.move(box["x"] + 0.8 * box["width"], y)
    await page.mouse.up()
    await page.wait_for_url("**/timeline?seconds=30&until=*")
    chosen = int(page.url.rpartition("=")[2])
    assert (until - chosen) / 1e9 == pytest.approx(20, abs=1)


async def test_a_gap_of_one_run_reaches_over_the_versions_of_another(page: Page, base: str) -> None:
    """No line leads into a gap, where uPlot would draw one up to the other run's next version."""
    await page.goto(f"{base}/{RUN}/compare?with={OTHER}&over=policy")
    plot = chart(page, "success of online episodes")
    drawn = await values(plot)
    assert any(None in curve["y"] for curve in drawn["curves"]), "nothing is tested without a gap"
    ends = await page.evaluate(
        """() => { const joined = []; const join = uPlot.join;
          uPlot.join = (...given) => { const made = join(...given); joined.push(made); return made; };
          document.dispatchEvent(new Event("renewed"));
          return joined.flatMap((made) => made.slice(1)).map((column) => [...column].map((one) => one === undefined ? "between" : one)); }"""
    )
    for column in ends:
        for before, after in pairwise(column):
            assert {before, after} != {None, "between"}


async def test_a_click_on_a_point_and_its_key_lead_to_its_episodes(page: Page, base: str) -> None:
    await page.goto(f"{base}/{RUN}/")
    await chart(page, "Success by policy version").locator(".area").focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowRight", "Enter"):
        await page.keyboard.press(key)
    await page.wait_for_url(f"**/{RUN}/episodes?origin=online&policy=*")
    await page.goto(f"{base}/{RUN}/")
    plot = chart(page, "Success by policy version")
    await point_at(page, plot, 0.001)
    await page.mouse.down()
    await page.mouse.up()
    await page.wait_for_url(f"**/{RUN}/episodes?origin=online&policy=0")


async def test_smoothing_and_the_log_scale_hold_for_the_metrics_and_are_kept(page: Page, base: str) -> None:
    await page.goto(f"{base}/{RUN}/")
    picture = "one => one.querySelector('canvas').toDataURL()"
    plot, success = chart(page, "loss"), chart(page, "Success by policy version")
    plain = [await one.evaluate(picture) for one in (plot, success)]
    await page.get_by_label("log scale").check()
    await page.wait_for_timeout(100)
    scaled = [await one.evaluate(picture) for one in (plot, success)]
    assert scaled[0] != plain[0]
    assert scaled[1] == plain[1]
    await page.get_by_label("smoothing").fill("0.9")
    await page.wait_for_timeout(100)
    smooth = await plot.evaluate(picture)
    assert smooth not in (plain[0], scaled[0])
    await page.reload()
    assert await page.get_by_label("log scale").is_checked()
    assert await page.locator(".chart-controls output").inner_text() == "0.9"


async def test_a_chart_is_downloaded_as_a_table_and_as_a_picture(page: Page, base: str) -> None:
    await page.goto(f"{base}/{RUN}/?over=position")
    plot = chart(page, "loss")
    async with page.expect_download() as waiting:
        await plot.get_by_role("button", name="CSV").click()
    download = await waiting.value
    assert download.suggested_filename == f"hindcast-{RUN}-loss.csv"
    rows = list(csv.DictReader(StringIO(Path(await download.path()).read_text())))
    (curve,) = (await values(plot))["curves"]
    assert [float(row["loss"]) for row in rows] == [y for y in curve["y"] if y is not None]
    assert [int(row["position in the log"]) for row in rows] == [
        x for x, y in zip(curve["x"], curve["y"], strict=True) if y is not None
    ]
    async with page.expect_download() as waiting:
        await plot.get_by_role("button", name="PNG").click()
    assert Path(await (await waiting.value).path()).read_bytes().startswith(b"\x89PNG")


async def test_without_the_script_there_is_the_servers_picture(browser: Browser, base: str) -> None:
    async with opened(browser, base, java_script_enabled=False) as page:
        await page.goto(f"{base}/{RUN}/?over=time")
        assert await page.locator(".curves > svg.chart").first.is_visible()
        assert "minutes since the run began" in await page.locator(".curves").first.inner_text()
        await page.goto(f"{base}/{RUN}/episodes/{EPISODE}")
        assert not await page.locator("#player").is_visible()
        assert await page.locator(".film").is_visible()


async def test_the_player_shows_a_step_at_a_time_and_the_address_keeps_it(page: Page, base: str) -> None:
    address = f"{base}/{RUN}/episodes/{EPISODE}"
    await page.goto(address)
    player = page.locator("#player")
    steps = await page.locator(".steps .step").count()
    assert "step 0 of" in await player.inner_text()
    assert await player.locator(".stage image").count() == 1, "its picture"
    assert not await page.locator(".film").is_visible()
    await page.keyboard.press("ArrowRight")
    await player.get_by_text("step 1 of").wait_for()
    assert page.url == f"{address}#step-1"
    assert await player.locator(".stage image").count() == 0
    await player.locator(".stage .seen").wait_for()
    assert await player.locator(".answer .token").count() > 3
    await player.get_by_role("button", name="next").click()
    assert page.url == f"{address}#step-2"
    await page.keyboard.press("ArrowLeft")
    assert await player.locator(".thumb[aria-current]").get_attribute("id") == "thumb-step-1"
    assert await player.locator(".thumb").count() >= steps
    failed = await page.locator(".step:not(:has(.result.ok, .result.exit))").count()
    assert await player.locator(".thumb.failed").count() == failed
    await page.goto("about:blank")
    await page.goto(f"{address}#step-2")
    assert "step 2 of" in await player.inner_text()
    await player.locator("#thumb-step-0").click()
    assert re.search(r"#step-0$", page.url)


async def test_a_step_without_a_screenshot_has_its_page_drawn_with_what_changed(
    page: Page, base: str
) -> None:
    await page.goto(f"{base}/{RUN}/episodes/{EPISODE}#step-2")
    drawn = page.locator("#player .stage > .seen .drawn")
    await drawn.wait_for()
    assert "drawn from the recorded page" in (await drawn.get_attribute("aria-label") or "")
    assert await drawn.locator(".part").count() == 63
    assert await drawn.locator(".part.new").all_inner_texts() == ["Item 60 60", "Item 61 61"]
    acted = drawn.locator(".part.acted")
    assert await acted.count() == 1
    assert await acted.is_visible()
    assert "not a screenshot" in await page.locator("#player .stage").inner_text()
    await page.keyboard.press("ArrowLeft")
    after = page.locator("#player .stage > details")
    await after.locator("summary").click()
    assert await drawn.locator(".part").count() == 61
    assert await after.locator(".part").count() == 63, "the page of the next step"
    await page.goto("about:blank")
    await page.goto(f"{base}/{RUN}/episodes/{EPISODE}#end")
    assert "at the end" in await page.locator("#player").inner_text()
    await drawn.wait_for()
    assert await page.locator("#player .answer .token").count() == 0


async def test_a_live_page_keeps_zoom_crosshair_and_step(page: Page, base: str, run: RunHandle) -> None:
    """The rest of the run is recorded while the page is open."""
    await page.goto(f"{base}/{RUN}/")
    plot = chart(page, "Success by policy version")
    await drag(page, plot, 0.2, 0.5)
    await point_at(page, plot, 0.5)
    before = await plot.locator(".readout").inner_text()
    canvas = await plot.locator("canvas").element_handle()
    assert canvas is not None
    async with run.connect_log("projector") as log:
        projecting = asyncio.create_task(run_projector(log, run.database_url, run.settings.storage))
        await tell(run, FACTS[EARLIER:])
        await page.locator("footer", has_text=f"of {len(FACTS)}").wait_for()
        projecting.cancel()
        await asyncio.gather(projecting, return_exceptions=True)
    assert await plot.get_by_role("button", name="Reset zoom").is_visible()
    assert await canvas.evaluate("one => one.isConnected"), "drawn on the same canvas"
    assert await plot.locator(".readout").inner_text() == before
