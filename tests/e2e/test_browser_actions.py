"""Every action of the table, in a real Chromium, on pages made for it."""

from collections.abc import AsyncIterator
from io import BytesIO

import msgspec
import pytest
import pytest_asyncio
from PIL import Image

from hindcast.actors.environments.actions import EXECUTORS, SCROLL_HEARD_S, ActionRefused
from hindcast.actors.environments.base import WindowImage
from hindcast.actors.environments.browser import BrowserHost
from hindcast.core.domain.action import ACTIONS, Action, ParseFailure
from hindcast.core.domain.observation import Box, Mark
from servers.browser_site import PATIENT, PageServer, PageSite, visiting

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(PATIENT) as host:
        yield host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[PageServer]:
    async with PageServer().running() as server:
        yield server


@pytest.fixture
def site(server: PageServer) -> PageSite:
    return PageSite(server)


async def test_every_action_of_the_table_has_an_executor_except_exit() -> None:
    assert set(EXECUTORS) == set(ACTIONS) - {"exit"}


async def test_click_follows_a_link_and_observes_the_page_it_leads_to(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "start.html") as visit:
        assert visit.page.ordinal == 5
        outcome = await visit.do("Click", "Form")
        assert (outcome.result, outcome.detail) == ("ok", "")
        assert visit.page.title == "Form"
        assert visit.page.ordinal == 0


async def test_clicks_are_trusted_and_go_to_the_element_that_was_shown(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "form.html") as visit:
        assert (await visit.do("Click", "Plain")).result == "ok"
        assert (await visit.do("Right Click", "Plain")).result == "ok"
        assert (await visit.do("Hover", "Hover here")).result == "ok"
        assert await visit.seen() == ["click true", "menu", "over"]


async def test_type_replaces_the_text_and_ends_with_a_key_event(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "form.html") as visit:
        assert visit.find("Query").value == "old"
        assert (await visit.do("Type", "Query", "größer 7")).result == "ok"
        assert visit.find("Query").value == "größer 7"
        assert await visit.seen() == ["input größer ", "key 7", "input größer 7"]


async def test_type_of_an_empty_text_clears_the_field(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "form.html") as visit:
        assert (await visit.do("Type", "Query", "")).result == "ok"
        assert visit.find("Query").value == ""


async def test_type_fills_a_textarea_and_a_date(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "form.html") as visit:
        await visit.do("Type", "Note", "two words")
        assert visit.find("Note").value == "two words"
        assert (await visit.do("Type", "Day", "2024-02-29")).result == "ok"
        assert visit.find("Day").value == "2024-02-29"
        wrong = await visit.do("Type", "Day", "tomorrow")
        assert wrong.result == "not_actionable"
        assert "tomorrow" in wrong.detail


async def test_type_refuses_what_takes_no_text(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "form.html") as visit:
        for name in ("Fixed", "Plain", "Gift wrap"):
            outcome = await visit.do("Type", name, "text")
            assert outcome.result == "not_actionable", name


async def test_search_types_and_submits(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "form.html") as visit:
        assert (await visit.do("Search", "Query", "blue & green")).result == "ok"
        assert visit.page.title == "Result"
        assert visit.shows("Query: blue & green")


async def test_press_sends_keys_to_an_element_or_to_the_page(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "form.html") as visit:
        assert (await visit.do("Press", "Note", "a")).result == "ok"
        assert (await visit.do("Press", argument="ctrl+b")).result == "ok"
        assert await visit.seen() == ["key a", "key Control", "key b"]
        unknown = await visit.do("Press", argument="Hyperspace")
        assert unknown.result == "not_actionable"
        assert "Hyperspace" in unknown.detail
        assert (await visit.do("Press", "Query", "Enter")).result == "ok"
        assert visit.page.title == "Result"


async def test_select_picks_an_option_by_label_value_or_part(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "form.html") as visit:
        assert visit.find("Colour").options == ("red", "green")
        for asked, value in (("green", "green"), ("RED ", "red"), ("g", "green"), ("re", "green")):
            outcome = await visit.do("Select Dropdown Option", "Colour", asked)
            assert outcome.result == ("not_actionable" if asked == "re" else "ok"), asked
            assert visit.find("Colour").value == value, asked
        missing = await visit.do("Select Dropdown Option", "Colour", "mauve")
        assert (missing.result, "mauve" in missing.detail, "red" in missing.detail) == (
            "not_actionable",
            True,
            True,
        )
        assert (await visit.do("Select Dropdown Option", "Plain", "red")).result == "not_actionable"
        assert await visit.seen() == ["change g", "change red", "change g"]


async def test_click_toggles_a_checkbox_by_its_label(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "form.html") as visit:
        assert visit.find("Gift wrap").checked is False
        await visit.do("Click", "Gift wrap")
        assert visit.find("Gift wrap").checked is True


async def test_scrolling_moves_the_page_until_its_end(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "long.html") as visit:
        assert visit.shows("Top of the page")
        assert not visit.shows("Bottom of the page")
        refused = await visit.do("Scroll Up")
        assert refused.result == "not_actionable"
        for _ in range(5):
            await visit.do("Scroll Down")
        assert visit.shows("Bottom of the page")
        assert not visit.shows("Top of the page")
        assert (await visit.do("Scroll Down")).result == "not_actionable"
        assert (await visit.do("Scroll Up")).result == "ok"


async def test_a_scroll_moves_the_share_of_the_window_that_the_settings_say(site: PageSite) -> None:
    """Two thirds of 720 pixels are 480, as in the released WebRL; WebArena moves a whole window."""
    site.traits = msgspec.structs.replace(site.traits, viewport=(1280, 720))
    for share, moved in ((0.6667, 480), (1.0, 720), (0.8, 576)):
        async with (
            BrowserHost(PATIENT.model_copy(update={"scroll_share": share})) as host,
            visiting(host, site, "long.html") as visit,
        ):
            await visit.do("Scroll Down")
            assert (await visit.world.finish(None)).probes["scrolled"] == moved
            await visit.do("Scroll Up")
            assert (await visit.world.finish(None)).probes["scrolled"] == 0


async def test_scrolling_moves_a_box_when_the_page_itself_does_not_scroll(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "box.html") as visit:
        assert not visit.shows("Below")
        for _ in range(4):
            await visit.do("Scroll Down")
        assert visit.shows("Below")


@pytest.mark.parametrize("path", ["hears.html", "hears-box.html"])
async def test_the_page_after_a_scroll_has_answered_to_it(
    host: BrowserHost, site: PageSite, path: str
) -> None:
    """A browser tells the page with its next frame only, sooner or later than we look."""
    async with visiting(host, site, path) as visit:
        for scrolls in range(1, 11):
            assert (await visit.do("Scroll Down")).result == "ok"
            assert visit.shows(f"{scrolls} scrolls heard")


async def test_scrolling_a_tab_that_was_in_the_background_is_as_quick(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "hears.html") as visit:
        await visit.do("New_tab", argument="/second.html")
        await visit.do("Close_tab")
        outcome = await visit.do("Scroll Down")
        assert visit.shows("1 scrolls heard")
        assert outcome.act_ms < 1000 * SCROLL_HEARD_S


async def test_wait_changes_nothing(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "start.html") as visit:
        before = visit.page
        outcome = await visit.do("Wait")
        assert (outcome.result, visit.page) == ("ok", before)
        assert outcome.act_ms >= 1000


async def test_tabs_open_take_focus_and_close(host: BrowserHost, site: PageSite, server: PageServer) -> None:
    async with visiting(host, site, "start.html") as visit:
        outcome = await visit.do("New_tab", argument="/second.html")
        assert (outcome.result, visit.page.title) == ("ok", "Second")
        assert (outcome.observation.tabs, outcome.observation.active_tab) == (("Start", "Second"), 1)
        assert (await visit.do("Tab_focus", argument="0")).result == "ok"
        assert visit.page.title == "Start"
        for wrong in ("2", "-1", "first", ""):
            assert (await visit.do("Tab_focus", argument=wrong)).result == "not_actionable", wrong
        await visit.do("Tab_focus", argument="1")
        outcome = await visit.do("Close_tab")
        assert (outcome.result, visit.page.title, outcome.observation.tabs) == ("ok", "Start", ("Start",))
        assert (await visit.do("Close_tab")).result == "not_actionable"
        outcome = await visit.do("New_tab")
        assert (outcome.result, visit.page.url, len(outcome.observation.tabs)) == ("ok", "about:blank", 2)


async def test_goto_takes_full_and_relative_addresses(
    host: BrowserHost, site: PageSite, server: PageServer
) -> None:
    async with visiting(host, site, "start.html") as visit:
        for address, title in (
            ("/form.html", "Form"),
            (f"{server.base}/second.html", "Second"),
            ("?again=1", "Second"),
            (server.base.removeprefix("http://") + "/form.html", "Form"),
            ("/missing.html", "Missing"),
        ):
            outcome = await visit.do("Goto", argument=address)
            assert (outcome.result, visit.page.title) == ("ok", title), address


async def test_going_back_and_forward_stays_within_the_episode(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "start.html") as visit:
        assert (await visit.do("Go_backward")).result == "not_actionable"
        assert visit.page.title == "Start"
        await visit.do("Click", "Form")
        assert (await visit.do("Go_backward")).result == "ok"
        assert visit.page.title == "Start"
        assert (await visit.do("Go_forward")).result == "ok"
        assert visit.page.title == "Form"
        assert (await visit.do("Go_forward")).result == "not_actionable"


async def test_exit_and_unreadable_answers_change_nothing_and_are_observed(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "start.html") as visit:
        before = visit.page
        outcome = await visit.do("exit", argument="42")
        assert (outcome.result, outcome.done, visit.page) == ("exit", False, before)
        outcome = await visit.world.step(ParseFailure(reason="expected a call"))
        assert (outcome.result, outcome.detail) == ("parse_failure", "expected a call")
        assert outcome.observation.page == before
        evidence = await visit.world.finish("42")
        assert (evidence.answer, evidence.probes["title"]) == ("42", "Start")
        assert evidence.final_url.endswith("/start.html")


async def test_what_cannot_be_acted_upon_is_refused_at_once(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "covered.html") as visit:
        assert visit.find("Under").id is None, "a covered button has no number"
        assert visit.find("Off").id is None, "a disabled button has no number"
        late, gone = visit.find("Late").id, visit.find("Gone soon").id
        window = visit.world._entered()
        await window.tab.page.evaluate("change()")  # behind the observation's back
        for element, result, words in (
            (late, "not_actionable", "covered"),
            (gone, "no_such_element", "has left"),
            (999, "no_such_element", "not on the page"),
        ):
            with pytest.raises(ActionRefused, match=words) as refused:
                await EXECUTORS["Click"](window, Action(name="Click", element=element))
            assert refused.value.result == result
        outcome = await visit.world.step(Action(name="Click", element=999))
        assert (outcome.result, outcome.act_ms < 500 * PATIENT.action_timeout_s) == ("no_such_element", True)


async def test_the_page_itself_can_end_the_episode(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "long.html") as visit:
        for _ in range(5):
            outcome = await visit.do("Scroll Down")
        assert not outcome.done
        assert (await visit.do("Click", "End")).done


async def test_a_rehearsed_slow_site_answers_late_to_whatever_loads_a_page(site: PageSite) -> None:
    settings = PATIENT.model_copy(update={"page_latency_ms": 300.0})
    async with BrowserHost(settings) as slow, visiting(slow, site, "start.html") as visit:
        outcome = await visit.do("Click", "Form")
        assert (outcome.result, visit.page.title) == ("ok", "Form")
        assert outcome.act_ms + outcome.observe_ms >= 300
        outcome = await visit.do("Go_backward")
        assert (outcome.result, visit.page.title) == ("ok", "Start")
        assert outcome.act_ms + outcome.observe_ms >= 300


def pixel(picture: WindowImage, x: int, y: int) -> tuple[int, ...]:
    """Colour of a picture, rounded to what JPEG keeps."""
    image = Image.open(BytesIO(picture.image))
    assert image.format == "JPEG"
    assert image.size == (picture.width, picture.height)
    found = image.convert("RGB").getpixel((x, y))
    assert isinstance(found, tuple)
    return tuple(round(part / 50) * 50 for part in found)


async def test_a_picture_shows_the_window_as_it_is_scrolled_and_where_its_elements_are(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "bands.html") as visit:
        picture = await visit.world.picture()
        assert (picture.width, picture.height, picture.scale, picture.missing) == (640, 512, 0.5, "")
        assert pixel(picture, 20, 500) == (200, 0, 0)
        upper = visit.find("Upper").id
        assert picture.marks == (Mark(upper or 0, Box(100, 200, 80, 40)),)
        assert (await visit.do("Click", "Upper")).touched == Box(100, 200, 80, 40)

        scrolled = [await visit.do("Scroll Down") for _ in range(2)]
        assert [outcome.touched for outcome in scrolled] == [None, None]
        later = await visit.world.picture()
        assert pixel(later, 20, 500) == (0, 0, 200)
        assert await visit.seen() == []  # taking it resizes nothing


async def test_a_page_that_is_never_drawn_has_no_picture_and_the_reason_is_said(server: PageServer) -> None:
    impatient = PATIENT.model_copy(update={"screenshot_timeout_s": 0.5})
    async with BrowserHost(impatient) as host, visiting(host, PageSite(server), "bands.html") as visit:
        window = visit.world._window
        assert window is not None
        await window.tab.page.evaluate("() => { setTimeout(() => { for (;;); }, 0); }")
        picture = await visit.world.picture()
        assert picture == WindowImage(missing="it took longer than 0.5 s (actors.screenshot_timeout_s)")
        assert window.spoiled
