"""Which windows are photographed, when, and what becomes of pictures that cannot be had."""

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hindcast.actors.environments.base import WindowImage
from hindcast.actors.environments.window import box_in, marks_in
from hindcast.actors.episodes.screenshots import MAX_MISSING, EpisodeScreenshots, ScreenshotBudget
from hindcast.app.cli.episode import screenshot_summary, write_screenshots
from hindcast.core.domain.observation import Box, Mark
from hindcast.core.errors import DiskFull
from hindcast.core.ids import digest_hex
from hindcast.core.prompts.rendering.marks import COLOURS
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue.episode import Screenshot
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.episode_queries import ScreenshotRow


class Gallery:
    """A world that can only be looked at."""

    def __init__(self, *missing: str) -> None:
        self.taken = 0
        self._missing = list(missing)

    async def picture(self) -> WindowImage:
        self.taken += 1
        why = self._missing.pop(0) if self._missing else ""
        if why:
            return WindowImage(missing=why)
        return WindowImage(image=b"picture %d" % self.taken, width=640, height=512, scale=0.5)


async def keep(image: bytes) -> BlobRef:
    return BlobRef(digest_hex(image), len(image))


def settings(**values: Any) -> ActorSettings:
    return ActorSettings(**{"screenshot_rate": 100.0, **values})


def pictures(world: Gallery, of: ActorSettings, *, keep: Any = keep) -> EpisodeScreenshots:
    return EpisodeScreenshots(world, keep=keep, settings=of, allowance=ScreenshotBudget(of))  # type: ignore[arg-type]


def shown(screenshot: Screenshot | None) -> tuple[str, int] | None:
    """When, and which picture it is."""
    if screenshot is None:
        return None
    numbers = {digest_hex(b"picture %d" % number): number for number in range(50)}
    assert screenshot.image is not None
    return screenshot.when, numbers[screenshot.image.sha256]


async def play(taking: EpisodeScreenshots, *results: str) -> list[tuple[str, int] | None]:
    """What each step keeps, and the end."""
    kept = []
    for index, result in enumerate(results):
        before = await taking.take_before(index)
        after = None if result == "exit" else await taking.take_after(result)  # type: ignore[arg-type]
        kept.append(shown(before or after))
    return [*kept, shown(await taking.final())]


async def test_first_failed_and_last_pages_have_pictures_at_ends() -> None:
    taken = await play(pictures(Gallery(), settings()), "ok", "ok", "not_actionable", "ok", "ok")
    assert taken == [("before", 1), None, ("after", 2), None, None, ("after", 3)]


async def test_every_page_has_one_when_all_are_asked_for() -> None:
    taken = await play(pictures(Gallery(), settings(screenshots="all")), "ok", "timeout", "ok")
    assert taken == [("before", 1), ("before", 2), ("before", 3), ("after", 4)]


async def test_a_page_that_nothing_was_done_to_is_not_photographed_twice() -> None:
    world = Gallery()
    taken = await play(pictures(world, settings(screenshots="all")), "ok", "exit")
    assert taken == [("before", 1), ("before", 2), ("after", 2)]
    assert world.taken == 2
    failed_last = await play(pictures(Gallery(), settings()), "ok", "no_such_element")
    assert failed_last == [("before", 1), ("after", 2), ("after", 2)]


async def test_nothing_is_photographed_when_it_is_off() -> None:
    world = Gallery()
    assert await play(pictures(world, settings(screenshots="off")), "ok", "timeout") == [None, None, None]
    assert world.taken == 0


async def test_a_picture_that_cannot_be_had_says_why_and_after_two_no_more_are_tried() -> None:
    world = Gallery("not drawn", "not drawn either")
    taking = pictures(world, settings(screenshots="all"))
    first = await taking.take_before(0)
    assert first is not None
    assert (first.image, first.missing) == (None, "not drawn")
    await taking.take_after("ok")
    second = await taking.take_before(1)
    assert second is not None
    assert second.missing == "not drawn either"
    await taking.take_after("ok")
    assert [await taking.take_before(2), await taking.final()] == [None, None]
    assert world.taken == MAX_MISSING == 2


async def test_a_full_disk_costs_the_picture_and_not_the_episode() -> None:
    async def full(_image: bytes) -> BlobRef:
        raise DiskFull("there is no room")

    first = await pictures(Gallery(), settings(), keep=full).take_before(0)
    assert first is not None
    assert (first.image, first.missing) == (None, "there is no room")


async def in_virtual_time(story: Callable[[Callable[[float], None]], Awaitable[None]]) -> None:
    """Runs a story whose clock stands still but for what the story says has passed."""
    loop = asyncio.get_running_loop()
    now = [0.0]
    patch = pytest.MonkeyPatch()
    patch.setattr(loop, "time", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    try:
        await story(passes)
    finally:
        patch.undo()


async def test_an_actor_takes_so_many_pictures_a_second_on_average_and_whole_episodes_of_them() -> None:
    of = settings(screenshot_rate=2.0)
    allowance = ScreenshotBudget(of)

    async def story(passes: Callable[[float], None]) -> None:
        total = 0
        whole = set()
        for _ in range(1000):
            world = Gallery()
            taking = EpisodeScreenshots(world, keep=keep, settings=of, allowance=allowance)  # type: ignore[arg-type]
            await play(taking, "ok", "timeout", "ok")
            whole.add(world.taken)
            total += world.taken
            passes(0.1)
        assert whole == {0, 3}
        assert 195 <= total <= 203  # 100 s

    await in_virtual_time(story)


async def test_what_was_not_used_is_saved_for_ten_seconds_at_most() -> None:
    of = settings(screenshot_rate=1.0)
    allowance = ScreenshotBudget(of)

    async def story(passes: Callable[[float], None]) -> None:
        assert allowance.admit()
        passes(3600.0)
        admitted = 0
        while allowance.admit():
            allowance.pay()
            admitted += 1
        assert admitted == 10

    await in_virtual_time(story)


def test_boxes_of_a_page_that_lies_are_not_believed() -> None:
    assert marks_in('[{"element": 3, "box": {"x": 1, "y": 2, "width": 3, "height": 4}}]') == (
        Mark(3, Box(1, 2, 3, 4)),
    )
    for lie in (
        None,
        7,
        "[",
        "[" * 10_000,
        "x" * 1_000_000,
        '[{"element": "a", "box": null}]',
        '[{"element": 1, "box": {"x": 1e9, "y": 0, "width": 1, "height": 1}}]',
        '[{"element": 1, "box": {"x": 0, "y": 0, "width": 0, "height": -1}}]',
        "\udc80",
    ):
        assert marks_in(lie) == ()
    assert box_in({"x": 1, "y": 2, "width": 3, "height": 4}) == Box(1, 2, 3, 4)
    for lie in (None, "box", {"x": 1}, {"x": 10**30, "y": 0, "width": 1, "height": 1}, [1, 2, 3, 4]):
        assert box_in(lie) is None


def row(**values: Any) -> ScreenshotRow:
    empty = dict.fromkeys(ScreenshotRow.__struct_fields__)
    return ScreenshotRow(**{**empty, "position": 9, "shows": "before", **values})


def test_with_marks_there_is_a_second_file_for_each_picture_and_a_reason_where_it_cannot_be_drawn(
    tmp_path: Path,
) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    drawn = BytesIO()
    Image.new("RGB", (64, 48), (255, 255, 255)).save(drawn, "JPEG")
    good, bad = blobs.put(drawn.getvalue()), blobs.put(b"no picture")
    marks = '[{"box":{"height":40,"width":60,"x":20,"y":40},"element":7}]'
    rows = (
        row(step=0, sha256=good.sha256, size_bytes=good.size, scale=0.5, marks=marks),
        row(step=1, sha256=bad.sha256, size_bytes=bad.size, scale=0.5, marks=marks),
    )
    files, without = write_screenshots(rows, blobs, tmp_path / "out", marked=True)
    assert [file.name for file in files] == [
        "step-000-before.jpg",
        "step-000-before-marks.png",
        "step-001-before.jpg",
    ]
    image = Image.open(files[1])
    assert (image.format, image.size) == ("PNG", (64, 48))
    assert image.getpixel((10, 39)) == COLOURS[7 % len(COLOURS)]
    assert len(without) == 1
    assert without[0].startswith("no step-001-before-marks.png: the 10 bytes are no picture")


def test_pictures_are_counted_in_words_and_written_out(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    first = blobs.put(b"the first page")
    rows = (
        row(step=0, sha256=first.sha256, size_bytes=first.size),
        row(step=3, shows="after", missing="not drawn"),
        row(step=4, sha256="ab" * 32, size_bytes=5, released=88),
        row(shows="after", sha256=first.sha256, size_bytes=first.size),
    )
    assert screenshot_summary(rows) == [
        "2 screenshots, 0 KiB; --screenshots DIR writes them out",
        "1 screenshots were deleted (storage.keep_page_episodes)",
        "no screenshot after step 3: not drawn",
    ]
    files, without = write_screenshots(rows, blobs, tmp_path / "out" / "pictures")
    assert [file.name for file in files] == ["step-000-before.jpg", "end.jpg"]
    assert all(file.read_bytes() == b"the first page" for file in files)
    assert without == ["no step-004-before.jpg: deleted at position 88"]


async def test_what_a_policy_is_shown_is_photographed_at_every_step_whatever_the_rate() -> None:
    of = settings(screenshots="off", screenshot_rate=0.001, screenshot_observation="newest")
    allowance = ScreenshotBudget(of)
    for _ in range(2):
        world = Gallery("", "not drawn")
        taking = EpisodeScreenshots(world, keep=keep, settings=of, allowance=allowance)  # type: ignore[arg-type]
        assert shown(await taking.take_before(0)) == ("before", 1)
        assert taking.image == b"picture 1"
        await taking.take_after("ok")
        missed = await taking.take_before(1)
        assert missed is not None
        assert (missed.missing, taking.image) == ("not drawn", b"")
        await taking.take_after("timeout")
        assert shown(await taking.take_before(2)) == ("before", 3)
        assert taking.image == b"picture 3"
