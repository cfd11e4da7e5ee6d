"""The index of page texts: what it finds, as of which position, and that it is no part of what a rebuild compares."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection

from hindcast.core.domain.observation import Node, Page
from hindcast.events.catalogue import EpisodeEnded, StepTaken
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.page_index import PageHit, PageIndex, PageIndexDamaged, episodes_with_text, words_of
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.episode_queries import Mention
from hindcast.storage.readmodel.fold import apply
from stories.synthetic_run import Told, a_run, record

TEA = Page(
    url="http://shop.test/tea",
    title="Teas",
    nodes=(
        Node(kind="heading", tag="h1", text="Rooibos Crème, 100 g", id=7),
        Node(kind="select", tag="select", text="Delivery", options=("Express", "Pick up")),
    ),
)
OTHER = Page(
    url="http://shop.test/", title="Home", nodes=(Node(kind="text", tag="p", text="rooibos is sold out"),)
)


class Story:
    """A log, its pages, and which events show which of them."""

    def __init__(self, folder: Path) -> None:
        self.blobs = BlobStore(folder / "blobs")
        refs = {page.title: self.blobs.put(msgspec.msgpack.encode(page)) for page in (TEA, OTHER)}
        self.facts: list[Told] = []
        self.shown: dict[str, list[tuple[int, str, int | None]]] = {"Teas": [], "Home": []}
        steps = ends = 0
        for position, told in enumerate(a_run(3, groups=3), 1):
            fact = told.fact
            if isinstance(fact, StepTaken):
                steps += 1
                # every third names a page that is nowhere
                title = {0: "Teas", 1: "Home"}.get(steps % 3)
                fact = msgspec.structs.replace(fact, observation=refs[title] if title else fact.observation)
                if title:
                    self.shown[title].append((position, fact.episode, fact.index))
            elif isinstance(fact, EpisodeEnded):
                ends += 1
                if ends == 2:
                    fact = msgspec.structs.replace(fact, final_observation=refs["Teas"])
                    self.shown["Teas"].append((position, fact.episode, None))
            self.facts.append(told._replace(fact=fact))
        self.log = MemoryLog("tale")

    def first(self, title: str, *, as_of: int) -> dict[str, PageHit]:
        found: dict[str, PageHit] = {}
        for position, episode, step in self.shown[title]:
            if position <= as_of:
                found.setdefault(episode, PageHit(position, step))
        return found


@pytest.fixture
async def story(tmp_path: Path) -> Story:
    made = Story(tmp_path)
    await record(made.log, made.facts)
    return made


@pytest.fixture
async def index(tmp_path: Path, story: Story) -> PageIndex:
    made = PageIndex(tmp_path)
    positions = [position async for position in made.extend(story.log, story.blobs)]
    assert positions[-1] == len(story.facts)
    return made


@pytest.fixture
async def connection(tmp_path: Path, story: Story) -> Iterator[Connection]:  # type: ignore[misc]
    model = ReadModel(f"sqlite:///{tmp_path}/model.sqlite", run="tale")
    model.prepare()
    with model.writing() as writing:
        apply(writing, [recorded async for recorded in read(story.log)])
    with model.reading() as reading:
        yield reading
    model.close()


@pytest.mark.parametrize(
    "text", ["Rooibos Crème", "rooibos creme", "CREME, 100", "pick u", "Rooibos (Crème)!"]
)
def test_words_are_found_in_their_order_whatever_their_case_accents_and_signs(
    index: PageIndex, story: Story, text: str
) -> None:
    last = len(story.facts)
    assert index.search(text, as_of=last) == story.first("Teas", as_of=last) != {}


def test_what_no_page_shows_is_not_found(index: PageIndex) -> None:
    for text in ("creme rooibos", "ooibos", "7", "", "!?", '"', "NOT rooibos"):
        assert index.search(text, as_of=10**6) == {}, text


def test_as_of_a_position_only_earlier_pages_are_found(index: PageIndex, story: Story) -> None:
    middle = len(story.facts) // 2
    found = index.search("express", as_of=middle)
    assert found == story.first("Teas", as_of=middle)
    assert len(found) < len(story.first("Teas", as_of=len(story.facts)))


def test_it_says_what_it_holds_and_is_gone_when_deleted(index: PageIndex, story: Story) -> None:
    status = index.status()
    assert status is not None
    named = [told for told in story.facts if isinstance(told.fact, StepTaken) and told.fact.observation]
    shown = sum(map(len, story.shown.values()))
    assert (status.position, status.pages, status.shown) == (len(story.facts), 2, shown)
    assert status.missing == len(named) + 1 - shown > 0
    assert status.size_bytes > 10_000
    assert index.delete()
    assert not index.delete()
    assert index.status() is None
    assert index.search("rooibos", as_of=10**6) == {}
    assert not list(index.file.parent.glob("page-index*"))


async def test_built_in_parts_and_again_it_is_the_same(
    tmp_path: Path, story: Story, index: PageIndex
) -> None:
    half = MemoryLog("tale")
    middle = len(story.facts) // 2
    await record(half, story.facts[:middle])
    (tmp_path / "parts").mkdir()
    parts = PageIndex(tmp_path / "parts")
    for log in (half, story.log, story.log):
        assert [position async for position in parts.extend(log, story.blobs)]
    one, other = index.status(), parts.status()
    assert one is not None
    assert other is not None
    assert msgspec.structs.replace(one, size_bytes=0) == msgspec.structs.replace(other, size_bytes=0)
    assert parts.search("express", as_of=10**6) == index.search("express", as_of=10**6)


async def test_the_index_of_another_log_is_built_anew(tmp_path: Path, index: PageIndex, story: Story) -> None:
    other = MemoryLog("tale")
    await record(other, a_run(5, groups=1), seed=5)
    assert [position async for position in index.extend(other, story.blobs)]
    assert index.search("rooibos", as_of=10**6) == {}


def test_a_damaged_file_is_named_with_the_way_out(tmp_path: Path) -> None:
    index = PageIndex(tmp_path)
    index.file.write_bytes(b"not a database" * 100)
    with pytest.raises(PageIndexDamaged, match="hindcast episode index --delete"):
        index.status()
    assert index.delete()


def test_pages_come_after_what_the_episode_itself_says(
    index: PageIndex, story: Story, connection: Connection
) -> None:
    found = episodes_with_text(connection, index, "rooibos")
    pages = {**story.first("Home", as_of=10**6), **story.first("Teas", as_of=10**6)}
    assert set(found) == set(pages)
    assert {place.where for place in found.values()} == {"page"}
    assert Mention(where="page", step=None).words == "last page"
    assert Mention(where="page", step=3).words == "page of step 3"
    index.delete()
    assert episodes_with_text(connection, index, "rooibos") == {}


def test_words_are_those_of_a_reader() -> None:
    assert words_of(TEA) == "Teas\nRooibos Crème, 100 g\nDelivery Express Pick up"
