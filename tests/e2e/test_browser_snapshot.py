"""What a page becomes: which things are kept, named and numbered. The page under test is browser_pages/rules.html."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.snapshot import LIMITS
from hindcast.core.prompts.rendering import RENDERERS
from servers.browser_site import PATIENT, PageServer, PageSite, visiting

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]

RULES = """\
page The rules
heading Texts
text One bold paragraph
text and a second line with
link a link [1]
text in it.
text In the box
text Name | Price
text Mug | $7.98
text Cup
link Buy cup [2]
text Material: steel
text Weight: 2 kg
text First
text Second
heading Controls
input By for = v [3]
input Around [4]
input Before it [5]
input Only a placeholder [6]
input By aria = ****** [7]
radio Text after = on [8]
radio Another = off [9]
checkbox Custom box = on [10]
select Many = a, b | a | b | c [11]
button Disabled by fieldset (disabled)
button Icon [12]
textarea Rich = some text [13]
heading Clickable
clickable By listener [14]
clickable By attribute [15]
clickable By tabindex [16]
button By role [17]
clickable By cursor [18]
text Not clickable
text Not a link
clickable Card title [19]
clickable Card text [20]
text Around
button Inner [21]
text In the shadow
button Shadow button [22]
button Picture [23]
image Alone
button Half under [24]
clickable Open section = open [25]
link Here = selected [26]
clickable trash [27]"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(PATIENT) as host:
        yield host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[PageSite]:
    async with PageServer().running() as server:
        yield PageSite(server)


async def test_a_page_is_read_as_a_person_sees_it(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "rules.html") as visit:
        assert RENDERERS["lines/1"](visit.page) == RULES
        assert visit.page.ordinal == 12
        assert not visit.page.truncated


async def test_numbers_follow_the_order_of_the_document_without_gaps(
    host: BrowserHost, site: PageSite
) -> None:
    async with visiting(host, site, "rules.html") as visit:
        numbers = [node.id for node in visit.page.nodes if node.id is not None]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_every_numbered_element_can_be_clicked(host: BrowserHost, site: PageSite) -> None:
    """Each on a fresh page, since links lead away."""
    async with visiting(host, site, "rules.html") as visit:
        numbers = [node.id for node in visit.page.nodes if node.id is not None]
        for number in numbers:
            node = next(node for node in visit.page.nodes if node.id == number)
            outcome = await visit.do("Click", node.text) if node.text else None
            if outcome is not None:
                assert outcome.result == "ok", (node, outcome.detail)
                await visit.do("Goto", argument="/rules.html")


async def test_a_custom_checkbox_is_set_through_its_label(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "rules.html") as visit:
        await visit.do("Click", "Custom box")
        assert visit.find("Custom box").checked is False
        await visit.do("Type", "Rich", "new")
        assert visit.find("Rich").value == "new"


async def test_a_large_page_is_cut_at_the_caps_and_says_so(host: BrowserHost, site: PageSite) -> None:
    async with visiting(host, site, "large.html") as visit:
        assert len(visit.page.nodes) == LIMITS["nodes"]
        assert visit.page.truncated
        assert max(len(node.text) for node in visit.page.nodes) <= LIMITS["text"]
