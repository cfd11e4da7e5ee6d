"""Pages let go of: never one that somebody may still want, said before it is gone, and the same after any start."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hindcast.storage.blobs.page_retention as page_keeping
from fakes.bare_step import bare_step
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.ids import digest_hex
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BlobReleased,
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeJudged,
    SnapshotSaved,
    WaitExceeded,
)
from hindcast.events.catalogue.episode import Screenshot
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.codec import decode, decode_envelope
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.page_retention import PageKeeper
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.blobs.wanted_pages import PageState, PageWindow, pages_kind
from stories.archive_story import QUICK
from stories.curriculum_story import Story, settings_of

RUN = "r_pages"
JUDGES = ("rules", "strict")
LONG_AGO_S = 1e9


REQUEST = Story(settings_of()).request()[0]


def requested(episode: str) -> Fact:
    return msgspec.structs.replace(REQUEST, episode=episode)


def step(episode: str, page: BlobRef) -> Fact:
    return msgspec.structs.replace(bare_step(episode, 0), observation=page)


def photographed(episode: str, picture: BlobRef) -> Fact:
    screenshot = Screenshot(
        image=picture, missing="", when="before", width=640, height=512, scale=0.5, marks=()
    )
    return msgspec.structs.replace(bare_step(episode, 1), screenshot=screenshot)


def ended(episode: str, page: BlobRef | None = None) -> Fact:
    return EpisodeEnded(
        episode=episode,
        task_id="t",
        actor="actor.1",
        reason="exit",
        steps=1,
        evidence=Evidence(answer=None, final_url="", probes={}),
        final_observation=page,
        policy_versions=(0, 0),
        duration_ms=1.0,
    )


def abandoned(episode: str) -> Fact:
    return EpisodeAbandoned(episode=episode, task_id="t", reason="lease_expired", detail="", steps=0)


def judged(episode: str, judge: str = "rules") -> Fact:
    judgment = Judgment(outcome="success", reward=1.0, reason="")
    return EpisodeJudged(
        episode=episode, task_id="t", judge=JudgeIdentity(name=judge, version="1"), judgment=judgment
    )


async def tell(log: MemoryLog, *facts: Fact, producer: str = "actor.1", clock_s: float = 0.0) -> None:
    clock = {"clock_ns": lambda: int(clock_s * 1e9)} if clock_s else {}
    async with Publisher(log, producer=producer, code_rev="t", settings=QUICK, **clock) as publisher:
        for number, fact in enumerate(facts):
            await publisher.publish(fact, entity=f"e{number}")


def ref(page: int) -> BlobRef:
    return BlobRef(digest_hex(f"page {page}".encode()), 6)


PAGES, EPISODES = st.integers(0, 5), st.sampled_from("abcdefg")
TOLD = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["step", "shown"]), EPISODES, PAGES),
        st.tuples(st.sampled_from(["end", "abandon"]), EPISODES, PAGES),
        st.tuples(st.sampled_from(JUDGES), EPISODES, PAGES),
    ),
    max_size=40,
)


@given(told=TOLD, keep=st.integers(1, 3), cut=st.integers(0, 40))
def test_due_are_the_pages_that_no_episode_shows_which_is_open_unjudged_or_among_the_latest(
    told: list[tuple[str, str, int]], keep: int, cut: int
) -> None:
    """Counted anew from the whole history, whatever came late or twice, and also of a state that was kept at any cut."""
    facts: list[Fact] = [requested(episode) for episode in "abcdefg"]
    shown: dict[str, set[str]] = {episode: set() for episode in "abcdefg"}
    under_way, over = set(shown), dict[str, set[str]]()
    for what, episode, page in told:
        if what in ("step", "shown"):
            facts.append(step(episode, ref(page)) if what == "step" else photographed(episode, ref(page)))
            shown[episode].add(ref(page).sha256)
        elif what in JUDGES:
            facts.append(judged(episode, what))
            over.get(episode, set()).discard(what)
        else:
            facts.append(ended(episode, ref(page)) if what == "end" else abandoned(episode))
            if what == "end":
                shown[episode].add(ref(page).sha256)
            if episode in under_way and shown[episode]:
                over[episode] = set(JUDGES) if what == "end" else set()
            under_way.discard(episode)
    log = MemoryLog(RUN)
    asyncio.run(tell(log, *facts))
    window, kind = PageWindow(keep=keep, judges=JUDGES), pages_kind(settings_of(), run=RUN)
    state = PageState()
    for stored in log.events:
        window.apply(state, stored.position, decode_envelope(stored))
        if stored.position == cut:
            state = kind.decode(kind.encode(state))
    unjudged = {episode for episode, judges in over.items() if judges}
    kept = under_way | unjudged | set(list(over)[-keep:])
    wanted = {page for episode in kept for page in shown[episode]}
    assert set(state.due) == set().union(*shown.values()) - wanted
    assert set(state.last_named) == wanted
    assert len(state.ended) <= keep + sum(bool(judges) for judges in over.values())


class Archived:
    """An archive that has copied what it was told."""

    settled = 0

    def __init__(self) -> None:
        self.copied: set[str] = set()

    def has_copied(self, ref: BlobRef) -> bool:
        return ref.sha256 in self.copied


class Bench:
    """A log with one page per episode that ended and was judged, and who keeps the pages."""

    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog(RUN)
        self.blobs = BlobStore(folder / "blobs")
        self.settings = settings_of(storage={"keep_page_episodes": 1, "snapshot_events": 16})
        self.archive: Archived | None = None

    def page(self, content: str, *, old: bool = True) -> BlobRef:
        page = self.blobs.put(content.encode())
        if old:
            os.utime(self.blobs.path(page), (LONG_AGO_S, LONG_AGO_S))
        return page

    async def play(self, episode: str, *pages: BlobRef) -> None:
        shown = pages or (self.page(f"all that {episode} showed"),)
        facts = [
            requested(episode),
            *(step(episode, page) for page in shown),
            ended(episode),
            judged(episode),
        ]
        await tell(self.log, *facts, clock_s=LONG_AGO_S + 1)
        await self.pass_time()

    async def pass_time(self) -> None:
        """An event much later: what was put before is named by now, or never will be."""
        later = WaitExceeded(setting="s", limit_s=1, waited_for="w")
        await tell(self.log, later, clock_s=LONG_AGO_S + 100)

    async def keep_until(self, done: Callable[[], bool], settings: Settings | None = None) -> None:
        async with Publisher(self.log, producer="pages.1", code_rev="t", settings=QUICK) as publisher:
            archive = self.archive
            keeper = PageKeeper(
                self.log,
                self.blobs,
                publisher,
                settings or self.settings,
                first=1,
                unnamed_s=10.0,
                copies=None if archive is None else lambda: archive,
            )
            keeping = asyncio.create_task(keeper.keep_on())
            async with asyncio.timeout(30):
                while not done():
                    assert not keeping.done(), keeping
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            keeping.cancel()
            await asyncio.wait([keeping])

    def said(self) -> list[str]:
        """Digests of the pages that events let go of."""
        facts = [recorded.fact for stored in self.log.events if (recorded := decode(stored))]
        released = [fact for fact in facts if isinstance(fact, BlobReleased)]
        assert all(fact.page for fact in released)
        return [fact.blob.sha256 for fact in released]

    def snapshots(self) -> list[int]:
        facts = [recorded.fact for stored in self.log.events if (recorded := decode(stored))]
        return [fact.position for fact in facts if isinstance(fact, SnapshotSaved)]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(page_keeping, "PAUSE_S", 0.01)
    return Bench(tmp_path)


async def test_pages_of_older_episodes_go_and_those_that_a_later_one_shows_too_stay(made: Bench) -> None:
    own, shared, last = made.page("own"), made.page("shared"), made.page("last")
    await made.play("a", own, shared)
    await made.play("b", shared, last)
    await made.keep_until(lambda: not made.blobs.has(own))
    assert made.said() == [own.sha256]
    assert made.blobs.has(shared)
    assert made.blobs.has(last)


async def test_a_page_that_was_just_put_again_stays_since_its_event_may_be_on_its_way(made: Bench) -> None:
    first, again = made.page("first"), made.page("again")
    await made.play("a", first, again)
    await made.play("b")
    made.page("again", old=False)
    await made.keep_until(lambda: not made.blobs.has(first))
    assert made.said() == [first.sha256]
    assert made.blobs.has(again)


async def test_a_clock_that_jumped_a_day_ahead_makes_no_page_older(made: Bench) -> None:
    """An event says tomorrow: what was put a moment ago is not a day old by that."""
    first, again = made.page("first"), made.page("again")
    await made.play("a", first, again)
    await made.play("b")
    made.page("again", old=False)
    later = WaitExceeded(setting="s", limit_s=1, waited_for="w")
    await tell(made.log, later, clock_s=time.time() + 86_400)
    await made.keep_until(lambda: not made.blobs.has(first))
    assert made.said() == [first.sha256]
    assert made.blobs.has(again)


async def test_an_episode_under_way_or_not_judged_keeps_its_pages_however_old(made: Bench) -> None:
    open_one, unjudged, old = made.page("open"), made.page("unjudged"), made.page("old")
    await tell(made.log, requested("open"), step("open", open_one), clock_s=LONG_AGO_S)
    await tell(made.log, requested("u"), step("u", unjudged), ended("u"), clock_s=LONG_AGO_S)
    await made.play("a", old)
    for episode in "bcd":
        await made.play(episode)
    await made.keep_until(lambda: not made.blobs.has(old))
    assert old.sha256 in made.said()
    assert made.blobs.has(open_one)
    assert made.blobs.has(unjudged)


async def test_what_the_archive_has_not_copied_stays(made: Bench) -> None:
    made.archive = Archived()
    copied, later = made.page("copied"), made.page("later")
    await made.play("a", copied, later)
    await made.play("b")
    made.archive.copied = {copied.sha256}
    made.archive.settled = 100
    await made.keep_until(lambda: not made.blobs.has(copied))
    assert made.said() == [copied.sha256]
    made.archive.copied |= {later.sha256}
    await made.keep_until(lambda: not made.blobs.has(later))


async def test_a_start_goes_on_from_the_snapshot_and_finishes_what_a_crash_left(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [made.page(f"page {number}") for number in range(6)]
    for number, page in enumerate(pages[:5]):
        await made.play(f"e{number}", page)

    def killed(*_: object, **__: object) -> bool:
        raise InterruptedError

    with monkeypatch.context() as crash:
        crash.setattr(BlobStore, "release_unless_renewed", killed)
        with pytest.raises(AssertionError, match="InterruptedError"):
            await made.keep_until(lambda: False)
    assert made.said(), "said before it is gone"
    assert all(made.blobs.has(page) for page in pages)
    await made.keep_until(lambda: not any(made.blobs.has(page) for page in pages[:4]))
    assert set(made.said()) == {page.sha256 for page in pages[:4]}
    (saved, *_) = made.snapshots()
    told = len(made.said())
    read: list[int] = []
    tail = MemoryLog.tail
    monkeypatch.setattr(
        MemoryLog, "tail", lambda self, *, after, headers=True: read.append(after) or tail(self, after=after)
    )
    await made.play("last", pages[5])
    await made.keep_until(lambda: not made.blobs.has(pages[4]))
    assert min(read) >= saved
    assert made.said()[told:] == [pages[4].sha256], "what is gone is not let go of again"


async def test_with_another_window_everything_is_folded_anew(made: Bench) -> None:
    pages = [made.page(f"page {number}") for number in range(6)]
    for number, page in enumerate(pages):
        await made.play(f"e{number}", page)
    many = settings_of(storage={"keep_page_episodes": 4, "snapshot_events": 16})
    await made.keep_until(lambda: not made.blobs.has(pages[1]), many)
    assert all(made.blobs.has(page) for page in pages[2:])
    await made.keep_until(lambda: not made.blobs.has(pages[4]))
    assert made.blobs.has(pages[5])
