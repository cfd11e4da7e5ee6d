"""A run's page as a folder of files: `hindcast export --format html`, opened in a real browser without a server."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from hindcast.actors.environments.chromium import find_browser
from hindcast.app.page import frozen
from hindcast.app.page.views.log import PAGE as LOG_PAGE
from hindcast.storage.readmodel.sql import SAVED
from stories.export_story import HOSTILE, IMAGE, export_archive

pytestmark = [pytest.mark.browser]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_archive(tmp_path_factory.mktemp("frozen"), "html")


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with two pages of the log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen, "LOGGED", 2 * LOG_PAGE)
        return export_archive(tmp_path_factory.mktemp("bounded"), "html")


@pytest.fixture(scope="module")
def browser(folder: Path, bounded: Path) -> Iterator[Browser]:
    """Opened after the exports, because its event loop runs in this thread."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find_browser(""), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab in which an error, or a request that fails, fails the test."""
    tab = browser.new_page(viewport={"width": 1160, "height": 900})
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("requestfailed", lambda request: errors.append(request.url))
    tab.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
    yield tab
    tab.close()
    assert errors == []


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


def test_every_address_of_every_file_is_a_file(folder: Path) -> None:
    assert (folder / "index.html").is_file()
    kinds = {re.split(r"[-.]", file.name)[0] for file in folder.glob("*.html")}
    assert kinds == {
        "index",
        "overview",
        "episodes",
        "timeline",
        "curriculum",
        "policies",
        "why",
        "settings",
        "lineage",
        "pair",
        "log",
        "sql",
    }
    reached = {folder / "index.html"}
    for file in files(folder):
        text = file.read_text()
        assert "<form" not in text
        assert "data-piece" not in text
        for given in re.findall(r' (?:href|src)="([^"]*)"', text):
            assert not given.startswith(("/", "http")), (file.name, given)
            target = (file.parent / unquote(unescape(given)).partition("#")[0]).resolve()
            assert target.exists(), (file.name, given)
            reached.add(target if given.partition("#")[0] else file)
    assert reached >= set(files(folder)), "some page cannot be reached"


def test_every_kind_of_file_opens_and_shuts_nobody_out(folder: Path, page: Page) -> None:
    first = {re.sub(r"[-.].*", "", file.name): file for file in reversed(files(folder))}
    for file in first.values():
        page.goto(file.as_uri())
        assert page.locator("main h1").count() == 1
        assert "hindcast export --format html" in page.inner_text("footer")
        assert page.evaluate("window.pwned") is None
        found = Axe().run(page, options={"preload": False})  # it would request the style sheet again
        assert [
            one["id"] for one in found.response["violations"] if one["impact"] in ("serious", "critical")
        ] == [], file.name
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, file.name
        page.set_viewport_size({"width": 1160, "height": 900})


def test_a_visitor_goes_from_the_overview_to_an_episode_and_plays_it(folder: Path, page: Page) -> None:
    page.goto((folder / "index.html").as_uri())
    assert page.locator(".plot canvas").count() > 0, "the script draws the charts"
    page.click("nav.views >> text=Episodes")
    page.locator("table.rows a.id[href]").first.click()
    assert page.inner_text(".instruction") == HOSTILE
    player = page.locator("#player")
    image = player.locator(".stage image")
    picture = (Path(page.url.removeprefix("file://")).parent / (image.get_attribute("href") or "")).resolve()
    assert picture.read_bytes() == IMAGE
    page.keyboard.press("ArrowRight")
    assert page.url.endswith("#step-1")
    assert player.locator(".stage > .seen .part-button").count() == 41
    assert player.locator(".answer .token").count() > 0
    assert player.locator(".stage > details > summary").inner_text() == "The page after it"
    page.click("nav.views >> text=Timeline")
    page.locator("svg.lanes a[href]").first.click()
    assert player.is_visible()


def test_a_visitor_filters_episodes_and_walks_from_one_to_the_update_that_it_moved(
    folder: Path, page: Page
) -> None:
    page.goto((folder / "episodes.html").as_uri())
    rows = page.locator("table.rows tbody tr").count()
    chosen = page.locator(".facets a[href]", has_text="success").first
    count = int(chosen.locator("b").inner_text())
    chosen.click()
    assert page.locator("table.rows tbody tr").count() == count < rows
    page.locator(".facets a[aria-current]").click()
    assert page.locator("table.rows tbody tr").count() == rows
    page.locator("table.rows a.id[href]").first.click()
    page.click("text=what it came from, and what came of it")
    assert page.locator("h1").inner_text().startswith("Episode ")
    page.locator("main a[href^='lineage-']").first.click()
    assert page.locator("h1").inner_text().split()[0] in ("Update", "Policy", "Episode")


def test_a_visitor_sees_where_a_failure_and_a_success_of_its_group_part(folder: Path, page: Page) -> None:
    page.goto((folder / "episodes.html").as_uri())
    page.locator("#look-first a[href]", has_text="first difference").first.click()
    assert page.locator("h1").inner_text().startswith("Side by side")
    outcomes = page.locator(".pair h2 .badge").all_inner_texts()
    assert sorted(text.split()[-1] for text in outcomes) == ["failure", "success"]
    assert page.locator("#difference[open] .drawn").count() > 0
    page.locator("section:has(> h2:text-is('The group')) a.id[href]").last.click()
    page.locator("#player").wait_for()  # its script draws it
    page.locator("a[href]", has_text="side by side").first.click()
    assert page.locator("h1").inner_text().startswith("Side by side")


def test_the_newest_events_have_files_and_a_page_says_which_have_none(
    bounded: Path, folder: Path, page: Page
) -> None:
    position = int(re.findall(r"as of position (\d+)", (bounded / "log.html").read_text())[0])
    page.goto((bounded / "log.html").as_uri())
    assert f"the {position - 2 * LOG_PAGE} positions before" in page.inner_text("main")
    shown = page.locator("tr[id]").evaluate_all("rows => rows.map(row => row.id)")
    page.click("text=older")
    shown += page.locator("tr[id]").evaluate_all("rows => rows.map(row => row.id)")
    assert shown == [f"at-{position - back}" for back in range(2 * LOG_PAGE)]
    assert page.locator("a[rel=next]").count() == 0
    page.goto((folder / "log.html").as_uri())
    whole = len(list(folder.glob("log*.html")))
    assert whole == -(-position // LOG_PAGE)
    assert "positions before" not in page.inner_text("main")
    page.locator("td.number a").nth(3).click()
    assert page.url.endswith(f"log.html#at-{position - 3}")


def test_saved_queries_have_their_rows_and_the_tables_their_columns(folder: Path, page: Page) -> None:
    page.goto((folder / "sql.html").as_uri())
    for title in [saved.title for saved in SAVED]:
        page.click(f"main p a:text-is('{title}')")
        assert page.inner_text("main pre") == next(one.sql for one in SAVED if one.title == title)
    page.click("main p a:text-is('updates')")
    assert page.locator("table.rows th").all_inner_texts() == ["update_number", "outcome", "position"]
    assert page.locator("table.rows tbody tr").count() > 0
    assert page.locator("details", has_text="judged_current").count() > 0


def test_a_printed_episode_has_its_screenshots_and_the_pages_of_all_steps(folder: Path, page: Page) -> None:
    file = next(file for file in (folder / "episodes").iterdir() if "part-button" in file.read_text())
    page.goto(file.as_uri())
    page.emulate_media(media="print")
    assert not page.locator("#player").is_visible()
    assert page.locator(".film image").first.is_visible()
    drawn = page.locator(".step .drawn")
    assert drawn.count() > 1
    for one in drawn.all():
        assert one.is_visible()
        assert one.evaluate("one => one.scrollHeight <= one.clientHeight + 1"), "nothing is cut off"
