"""Pages as WebRL's published code shows them, written out by hand from its rules. The page is browser_pages/outline.html.

Rules: THUDM/VisualAgentBench, VAB-WebArena-Lite/new/html_tools (prepare.js, clickable_checker.js, label.js, html_parser.py).
Every element of the page has its box in whole pixels, so that no font decides one.
"""

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.snapshot import LIMITS, take_snapshot
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page
from hindcast.core.prompts.rendering import RENDERERS
from servers.browser_site import PATIENT, PageServer, PageSite, visiting

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]

OUTLINE = " ".join(
    """\
<html data-bbox="0,0,1280,500"> <body data-bbox="0,0,1280,500">
<div data-bbox="0,0,200,100"> <span id="1" data-text="Reports" data-bbox="10,10,60,20"> Reports </span> </div>
<p data-text="Chart is,, click,." data-bbox="0,100,200,20"> Chart is
<b data-text="off" data-bbox="60,100,30,20"> off </b> <a id="2" data-text="here" data-bbox="100,100,40,20"> here </a> </p>
<input id="3" title="Go" type="submit" data-bbox="0,130,50,20"> </input>
<input id="4" type="checkbox" data-value="on" data-bbox="60,130,20,20" data-status="checked"> </input>
<input id="5" value="***" type="password" data-bbox="90,130,80,20"> </input>
<select id="6" data-value="2" data-text="Two" data-bbox="200,130,80,20">
<option value="1" data-text="One"> One </option>
<option value="2" data-text="Two" data-status="selected"> Two </option> </select>
<p data-text="Alone in two" data-bbox="0,190,80,20"> Alone in two </p>
<p data-text="Beside a drawing" data-bbox="20,300,80,20"> Beside a drawing </p>
<source type="image/svg+xml" data-bbox="300,0,10,10"> <img title="Logo" data-bbox="300,0,10,10"> </img> </source>
<textarea id="8" data-value="two lines" data-bbox="300,20,100,40"> two lines </textarea>
<div id="9" data-text="Buy\u00a0& go" data-bbox="300,70,50,20"> Buy\u00a0& go </div>
<h2 title="New" data-bbox="300,100,51,20"> New </h2> </body> </html>""".splitlines()
)
"""Of the link with the icon, number 7, nothing is shown: what is clicked in it is hidden from readers and says nothing."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(PATIENT.model_copy(update={"renderer": "webrl/3"})) as host:
        yield host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[PageSite]:
    async with PageServer().running() as server:
        yield PageSite(server)


async def test_a_page_is_shown_as_webrl_s_published_code_shows_it(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "outline.html") as visit:
        assert RENDERERS["webrl/3"](visit.page) == OUTLINE
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(visit.page), type=Page)
        assert RENDERERS["webrl/3"](kept) == OUTLINE


async def test_its_numbers_are_those_that_actions_go_by(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "outline.html") as visit:
        named = {node.id: node.text for node in visit.page.nodes if node.id is not None}
        assert list(named) == list(range(1, 10))
        assert (named[1], named[2], named[9]) == ("Reports", "here", "Buy & go")
        for number in (1, 2, 9):
            assert (await visit.world.step(Action(name="Click", element=number))).result == "ok"
        assert await visit.seen() == ["SPAN", "A", "buy"]


async def test_the_rest_of_the_page_is_as_without_an_outline(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "rules.html") as visit:
        window = visit.world._window
        assert window is not None
        plain = (await take_snapshot(window.tab.page)).page
    assert plain is not None
    assert plain.outline is msgspec.UNSET
    assert b"outline" not in msgspec.msgpack.encode(plain)
    outlined = iter([(node.kind, node.text) for node in visit.page.nodes])
    assert all((node.kind, node.text) in outlined for node in plain.nodes)


async def test_no_odd_name_and_no_half_letter_costs_an_episode(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "odd.html") as visit:
        shown = RENDERERS["webrl/3"](visit.page)
        assert '<li_a data-text="An element of this name" data-bbox="0,0,100,20">' in shown
        assert '<button_b_ id="1" data-text="Press" data-bbox="0,30,100,20">' in shown
        assert '<form data-text="A form" data-bbox="0,120,100,20"> A form </form>' in shown
        assert visit.page.title == "Odd"
        assert 'title="a letter: \ufffd"' in shown
        assert "x\U0001f600\U0001f600 </p>" in shown
        assert visit.page.nodes[-1].text == "x" * 198 + "\ufffd\u2026", "cut within a letter"


async def test_an_outline_looks_at_no_more_than_a_snapshot_does(
    host: BrowserHost, site: PageSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visiting(host, site, "outline.html") as visit:
        window = visit.world._window
        assert window is not None
        page = window.tab.page
        await page.evaluate(
            """() => {
                document.body.innerHTML = "<p>one</p>".repeat(40);
                document.body.firstChild.title = "far".padStart(100);
                document.body.append(..." a".repeat(100).match(/../g));
            }"""
        )
        for name, limit in {"elements": 20, "part": 60}.items():
            monkeypatch.setitem(LIMITS, name, limit)
        found = (await take_snapshot(page, outline=True)).page
        assert found is not None
        assert found.truncated
        assert isinstance(found.outline, tuple)
        body = found.outline[1]
        assert body.tag == "body"
        assert body.attributes["data-text"] == ",".join("a" * 30)
        inner = found.outline[2:]
        assert [element.tag for element in inner] == ["p"] * 16, (
            "head, two elements in it, and body count, too"
        )
        assert not any("title" in element.attributes for element in inner)


async def test_elements_that_are_never_closed_do_not_multiply_what_is_looked_at(
    host: BrowserHost, site: PageSite
) -> None:
    """Each holds all that follows it: a copy of that for each took 43 s of a page with a million comments."""
    async with visiting(host, site, "outline.html") as visit:
        window = visit.world._window
        assert window is not None
        page = window.tab.page
        await page.evaluate(
            """() => {
                document.body.innerHTML = "<wbr>".repeat(300) + "<!---->".repeat(300);
                const slice = Array.prototype.slice;
                window.copied = 0;
                Array.prototype.slice = function (...bounds) {
                    const copy = slice.apply(this, bounds);
                    window.copied += copy.length;
                    return copy;
                };
            }"""
        )
        found = (await take_snapshot(page, outline=True)).page
        assert found is not None
        assert not found.truncated
        assert await page.evaluate("copied") < 600


async def test_a_page_that_takes_its_root_away_is_an_empty_one(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "outline.html") as visit:
        window = visit.world._window
        assert window is not None
        await window.tab.page.evaluate("document.documentElement.remove()")
        found = (await take_snapshot(window.tab.page, stay=True, outline=True)).page
        assert found is not None
        assert (found.nodes, found.outline) == ((), ())
