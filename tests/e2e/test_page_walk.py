"""A first-time user's questions, answered on the page from its home by clicks alone, without the terminal."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Page
from typer.testing import CliRunner

from hindcast.app.cli import app
from hindcast.app.runs.runs import RunHandle
from hindcast.core.rl.statistics import difference, wilson
from hindcast.events.catalogue import EpisodeRequested, RunForked
from hindcast.events.catalogue.curriculum import BranchPoint
from hindcast.storage.readmodel.episode_queries import EpisodeRow, list_episodes
from hindcast.storage.readmodel.outcome_counts import Families, families_by_version, training_tallies
from stories.recorded_home import make_home
from stories.served_page import fold, launched, opened, served
from stories.synthetic_run import Told, a_run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.broker, pytest.mark.browser]

EARLIER_RUN = "earlier"
MOST_S = 120
"""Seconds within which a question is answered."""


def branching() -> list[Told]:
    """A run in whose groups the third member and those after it continue the first one from its second step."""
    first: dict[str, str] = {}
    found = []
    for told in a_run(1, groups=16):
        fact = told.fact
        if isinstance(fact, RunForked):
            continue
        if isinstance(fact, EpisodeRequested) and fact.origin == "online":
            begun = first.setdefault(fact.group, fact.episode)
            if fact.member >= 2 and begun != fact.episode:
                told = told._replace(
                    fact=msgspec.structs.replace(fact, branch=BranchPoint(episode=begun, step=1))
                )
        found.append(told)
    return found


class Walk:
    """A visit that begins at the home; counts what the visitor does."""

    def __init__(self, page: Page, home: str) -> None:
        self.page = page
        self.home = home
        self.actions = 0
        self._began = time.perf_counter()

    async def begin(self, run: str) -> None:
        """Open the home and click on a run."""
        await self.page.goto(self.home)
        await self.click(f"main table a:text-is('{run}')")

    async def click(self, what: str) -> None:
        """Click on the first element that matches."""
        self.actions += 1
        await self.page.locator(what).first.click()
        await self.page.wait_for_load_state()

    async def enter(self, name: str, value: str) -> None:
        """Fill in a field, or choose from a list."""
        self.actions += 1
        field = self.page.locator(f"main [name={name}]")
        if await field.evaluate("one => one.tagName") == "SELECT":
            await field.evaluate("(one, value) => { one.value = value; }", value)
        else:
            await field.fill(value)

    def is_answered(self, *, most: int) -> None:
        """Check that no more than `most` actions were needed, in less than two minutes."""
        assert self.actions <= most, self.actions
        assert time.perf_counter() - self._began < MOST_S


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    home: Path = tmp_path_factory.mktemp("walk") / "home"
    other = [told for told in a_run(2, groups=4, run=EARLIER_RUN) if not isinstance(told.fact, RunForked)]
    await make_home(home, other, run=EARLIER_RUN)
    await asyncio.to_thread(fold, home)
    handle = await make_home(home, branching())
    await asyncio.to_thread(fold, home)
    return handle


@pytest_asyncio.fixture(loop_scope="module")
async def walk(run: RunHandle) -> AsyncIterator[Walk]:
    async with served(run.home) as base, launched() as browser, opened(browser, base) as page:
        yield Walk(page, base)


def played(run: RunHandle) -> dict[int, Families]:
    model = run.read_model()
    with model.reading() as connection:
        found = families_by_version(training_tallies(connection), origin="online")
    model.close()
    return found


async def test_why_did_a_family_get_worse_between_two_versions(walk: Walk, run: RunHandle) -> None:
    by_version = played(run)
    family, before, after = next(
        (family, before, after)
        for before in by_version
        for after in by_version
        for family in by_version[before].keys() & by_version[after].keys()
        if before < after
    )
    await walk.begin(run.name)
    await walk.click("text=Which family fell most, and why")
    await walk.enter("family", family)
    await walk.enter("since", str(before))
    await walk.enter("until", str(after))
    await walk.click("#family button")
    said = await walk.page.inner_text("#family .health")
    change = difference(*by_version[before][family], *by_version[after][family])
    assert f"{100 * change.rate:+.0f} points" in said
    assert f"[{100 * change.low:+.0f}, {100 * change.high:+.0f}]" in said
    assert ("do not show a change" in said) == (change.low <= 0 <= change.high)
    shown = await walk.page.inner_text("#family")
    assert "Trained on between them" in shown
    failed = sum(judged - won for won, judged in (by_version[after][family],))
    assert (await walk.page.locator("#family table").count() == 1) == (failed > 0)
    walk.is_answered(most=6)


async def test_versions_in_the_wrong_order_are_refused_in_words(walk: Walk, run: RunHandle) -> None:
    for query, said in (("since=5&until=3", "before until=3"), ("family=no/such", "no judged episode")):
        answer = await walk.page.request.get(f"{walk.home}/{run.name}/why?{query}")
        assert answer.status == 400
        assert said in await answer.text()


async def test_which_episode_to_look_at_first(walk: Walk, run: RunHandle) -> None:
    await walk.begin(run.name)
    await walk.click("text=Episodes to look at first")
    await walk.click("#look-first td:last-child a")
    assert "First difference" in await walk.page.inner_text(".health")
    walk.is_answered(most=3)


async def test_whether_training_is_healthy(walk: Walk, run: RunHandle) -> None:
    await walk.begin(run.name)
    assert "not running now" in await walk.page.inner_text(".health")
    signs = await walk.page.inner_text(".signs")
    assert "points [" in signs
    assert "Alerts were not watched" in signs
    walk.is_answered(most=1)


async def test_how_a_run_compares_with_the_last(walk: Walk, run: RunHandle) -> None:
    await walk.begin(run.name)
    await walk.click("text=Compare with the run before")
    checked = walk.page.locator("main input[name=with]:checked")
    assert await checked.evaluate_all("all => all.map(one => one.value)") == [EARLIER_RUN]
    assert await walk.page.locator(".curves").count() > 0
    walk.is_answered(most=2)


def branched(run: RunHandle) -> tuple[EpisodeRow, list[EpisodeRow]]:
    """An episode that others with a verdict continue, and those."""
    model = run.read_model()
    with model.reading() as connection:
        rows = list_episodes(connection, limit=10_000)
    model.close()
    by_name = {row.episode: row for row in rows}
    name = next(
        row.branch_episode
        for row in rows
        if row.branch_episode and row.outcome and (by_name[row.branch_episode].steps or 0) > 1
    )
    return by_name[name], [row for row in rows if row.branch_episode == name]


async def test_an_episode_shows_what_continues_it_and_a_continuation_what_it_continues(
    walk: Walk, run: RunHandle
) -> None:
    own, continuations = branched(run)
    outcomes = [row.outcome for row in (own, *continuations)]
    won, judged = (
        outcomes.count("success"),
        len(outcomes) - outcomes.count("undecided") - outcomes.count(None),
    )
    band = wilson(won, judged)
    await walk.page.goto(f"{walk.home}/{run.name}/episodes/{own.episode}")
    said = await walk.page.locator(".steps .step").nth(1).locator(".value").first.inner_text()
    assert (
        f"{band.rate:.0%} succeed from here [{band.low:.0%}, {band.high:.0%}] n={judged} of itself and"
        in said
    )
    assert await walk.page.locator(".steps .step").first.locator(".value", has_text="succeed").count() == 0
    await walk.click(f"dl.facts a:text-is('{continuations[0].episode}')")
    assert f"{own.episode} from step 1" in await walk.page.inner_text("dl.facts")
    await walk.click(f"dl.facts a:text-is('{own.episode}')")
    assert walk.page.url.endswith(f"/episodes/{own.episode}#step-1")


async def test_a_frozen_page_compares_runs_and_explains_families_without_a_server(
    run: RunHandle, tmp_path: Path
) -> None:
    folder = tmp_path / "frozen"
    command = ["export", run.name, "--format", "html", "--to", str(folder), "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, app, command, env={"HINDCAST_HOME": str(run.home)})
    assert done.exit_code == 0, done.output
    errors: list[str] = []
    async with launched() as browser:
        page = await browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        await page.goto((folder / "index.html").as_uri())
        await page.click("text=Which family fell most, and why")
        assert "points" in await page.inner_text("#family .health")
        other = page.locator("#family a[href*=why-family]").first
        name = await other.inner_text()
        await other.click()
        assert await page.inner_text("#family h2") == f"{name} online episodes, 95 % intervals"
        await page.click("nav.views >> text=Compare")
        assert EARLIER_RUN in await page.inner_text("main")
        assert await page.locator(".plot canvas").count() > 0
    assert errors == []
