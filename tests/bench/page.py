"""What the page of a long run costs: the questions behind each address, and how soon a browser shows something.

    LongRun ──fold──> SQLite ──views──> seconds of processor and wall time, now and as of the middle of the log
                         └──server──> Chromium ──> first contentful paint, each time in a fresh profile

The log itself is never made: no page but an opened step reads it. `consumers`, `log` and `pair` ask a broker and are left out.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from playwright.async_api import Browser, async_playwright
from starlette.datastructures import QueryParams

from bench.comparison import interval_of_mean
from bench.long_run import RUN, fill_with_long_run
from bench.replay import Figure
from hindcast.actors.environments.chromium import find_browser
from hindcast.app.page.application import VIEWS, PageView, serve_page, spare_what_is_loaded
from hindcast.app.page.runs import OpenRuns, PageQuery
from hindcast.app.runs.runs import create_run, list_runs, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.storage.readmodel.episode_queries import list_episodes
from hindcast.storage.readmodel.query_parts import position_of

QUERY_GOAL_S = 0.2
PAINT_GOAL_S = 0.3
LEFT_OUT = ("consumers", "log", "pair")
WARM_UP = 1
"""Times that are not counted: the first look reads the file from the disk."""
PAINT = """() => new Promise((done) => {
  const found = () => performance.getEntriesByName("first-contentful-paint")[0];
  if (found()) return done(found().startTime);
  const seen = new PerformanceObserver(() => { if (found()) { seen.disconnect(); done(found().startTime); } });
  seen.observe({ type: "paint", buffered: true });
})"""
"""Milliseconds since the request, once there is something to see."""

Said = Callable[[str], None]


def make_run(home: Path, *, events: int) -> None:
    """A home with one run of so many events; one that is there already is taken as it is."""
    known = RUN in list_runs(home)
    handle = open_run(RUN, home=home) if known else create_run(resolve(environment={}), name=RUN, home=home)
    model = handle.read_model()
    if model.position() != events:
        fill_with_long_run(model, events)
    model.close()


def addresses(home: Path) -> dict[str, tuple[PageView, str, dict[str, str], dict[str, str]]]:
    """Page by name: its view, its address below the run, what that names, and what stands behind the question mark."""
    model = open_run(RUN, home=home).read_model()
    with model.reading() as connection:
        middle = position_of(connection, None) // 2
        episode = list_episodes(connection, as_of=middle, state="ended", limit=1)[0].episode
    model.close()
    found: dict[str, tuple[PageView, str, dict[str, str], dict[str, str]]] = {}
    for view in VIEWS:
        if view.name in LEFT_OUT:
            continue
        parts = {"episode": episode} if "{episode}" in view.path else {}
        if view.name == "lineage":
            parts = {"kind": "episode", "name": episode}
        query = {"with": RUN} if view.name == "compare" else {}
        path = view.path.replace("{name:path}", "{name}").format(**parts)
        found[view.name] = (view, path, parts, query)
    view, path, parts, _ = found["episodes"]
    found["episodes, successes"] = (view, path, parts, {"outcome": "success"})
    view, path, parts, _ = found["timeline"]
    found["timeline, an hour"] = (view, path, parts, {"seconds": "3600"})
    return found


def queries(home: Path, *, repeats: int) -> list[Figure]:
    """Seconds behind every page, without its HTML, as the page's own process takes them."""
    spare_what_is_loaded()
    runs = OpenRuns(home)
    figures = []
    try:
        for name, (view, _, parts, query) in addresses(home).items():
            for as_of in ("now", "half"):
                if as_of == "half" and view.of_now:
                    continue
                figures.append(_query(runs, f"{name}, {as_of}", view, parts, query, as_of, repeats))
    finally:
        runs.close()
    return figures


def _query(
    runs: OpenRuns,
    name: str,
    view: PageView,
    parts: dict[str, str],
    query: dict[str, str],
    as_of: str,
    repeats: int,
) -> Figure:
    wall, cpu = [], []
    for number in range(WARM_UP + repeats):
        began, cpu_began = time.perf_counter(), time.process_time()
        with runs.asking(RUN, None) as (run, connection, place):
            position = place.position if as_of == "now" else place.position // 2
            view.answer(
                PageQuery(
                    runs=runs,
                    run=run.handle,
                    connection=connection,
                    position=position,
                    parts=parts,
                    query=QueryParams(query),
                )
            )
        if number >= WARM_UP:
            wall.append(time.perf_counter() - began)
            cpu.append(time.process_time() - cpu_began)
    low, high = interval_of_mean(wall)
    return Figure(
        name=f"query: {name}",
        value=fmean(wall),
        low=low,
        high=high,
        unit="s",
        goal=QUERY_GOAL_S,
        detail=f"{fmean(cpu):.3f} s of processor time, n = {repeats}",
    )


async def paints(home: Path, *, repeats: int) -> list[Figure]:
    """Seconds from the request to the first content in Chromium, for every page."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        token = secrets.token_urlsafe(32)
        serving = group.create_task(
            serve_page(home, host="127.0.0.1", port=0, token=token, ready=address.set_result)
        )
        try:
            base = await address
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=find_browser(""))
                pages = await asyncio.to_thread(addresses, home)
                return [
                    await _paint(browser, name, f"{base}/{RUN}/{path}", query, repeats, token=token)
                    for name, (_, path, _, query) in pages.items()
                ]
        finally:
            serving.cancel()


async def _paint(
    browser: Browser, name: str, address: str, query: dict[str, str], repeats: int, *, token: str
) -> Figure:
    asked = "&".join(f"{key}={value}" for key, value in query.items())
    took = []
    for number in range(WARM_UP + repeats):
        context = await browser.new_context(extra_http_headers={"Authorization": f"Bearer {token}"})
        page = await context.new_page()
        await page.goto(f"{address}?{asked}" if asked else address)
        painted_ms = float(await page.evaluate(PAINT))
        if number >= WARM_UP:
            took.append(painted_ms / 1000)
        await context.close()
    low, high = interval_of_mean(took)
    return Figure(
        name=f"first contentful paint: {name}",
        value=fmean(took),
        low=low,
        high=high,
        unit="s",
        goal=PAINT_GOAL_S,
        detail=f"n = {repeats}",
    )


async def measure(home: Path, *, events: int, repeats: int, said: Said) -> Sequence[Figure]:
    """All figures of a home that is made, or was kept."""
    said(f"a run of {events:,} events is folded into tables")
    await asyncio.to_thread(make_run, home, events=events)
    said("its pages are asked for")
    found = await asyncio.to_thread(queries, home, repeats=repeats)
    said("and shown in Chromium")
    return [*found, *await paints(home, repeats=repeats)]
